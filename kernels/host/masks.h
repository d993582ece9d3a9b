// Carries token masks from whoever makes them to the draws that wait for them.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/mutex.h"
#include "kernels/ops/backend.h"

namespace skein::kernels {

// Holds the masks of an executable's batches, by slot. Any thread may call.
class TokenMasks {
 public:
  explicit TokenMasks(int32_t slots) {
    for (std::vector<Mask>& batch : masks_) batch.resize(slots);
  }

  // The draws of a slot that gets a second mask before Clear fail.
  void Set(int batch, int32_t slot, absl::Span<const uint32_t> bits);
  // Waits for the mask, which stays valid until Clear. Calls `meanwhile` now and then, so that
  // others need not wait for this thread; errors are its own, and Fail's.
  absl::StatusOr<absl::Span<const uint32_t>> Await(int batch, int32_t slot,
                                                   absl::FunctionRef<absl::Status()> meanwhile);
  // Forgets the masks of a batch that is over.
  void Clear(int batch);
  void Fail(const absl::Status& why);

 private:
  struct Mask {
    bool set = false;
    std::vector<uint32_t> bits;  // kept for its memory
  };

  Mutex mutex_;
  CondVar changed_;
  absl::Status failed_ ABSL_GUARDED_BY(mutex_);
  std::array<std::vector<Mask>, Executable::kBatches> masks_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace skein::kernels
