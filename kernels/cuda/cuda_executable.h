// Runs Programs on a GPU. Batches are queued on one stream; the host goes on meanwhile.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "base/mutex.h"
#include "base/stream.h"
#include "base/view.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/cuda/batch_upload.h"
#include "kernels/cuda/blas_linear.h"
#include "kernels/cuda/compile.h"
#include "kernels/cuda/cuda_memory.h"
#include "kernels/cuda/resources.h"
#include "kernels/host/masks.h"
#include "kernels/host/sampler.h"
#include "kernels/host/slots.h"
#include "kernels/ops/backend.h"
#include "kernels/ops/validate.h"

namespace skein::kernels::cuda {

struct DeviceFacts {
  int device = 0;  // CUDA's number
  int32_t multiprocessors = 0;
};

// A batch is one upload, the kernels, and where the Program has logits their way back to the host,
// where a call in the stream's order draws the tokens; the next batch takes these up on the device.
//
// The host keeps a mirror of the slots: a batch's rows are known as it is enqueued, but for what
// guesses before it gave; a batch behind one with guesses waits for it.
class CudaExecutable final : public Executable {
 public:
  // `threads`, at least 1, draw.
  static absl::StatusOr<std::unique_ptr<CudaExecutable>> Create(const Program& program,
                                                                const Limits& limits,
                                                                const Bindings& bindings,
                                                                const DeviceFacts& facts,
                                                                int threads);
  ~CudaExecutable() override;

  absl::Status WarmUp() override;
  Batch& batch(int i) override { return batches_[i]; }
  View port(BufferId id, int i) override;
  absl::StatusOr<Ticket> Enqueue(int i) override;
  absl::StatusOr<bool> Wait(Ticket ticket, Stream stream, absl::Time deadline) override;
  void After(int i, Stream stream) override;
  const BatchResult& result(int i) const override { return runs_[i].result; }
  void SetTokens(absl::Span<const int32_t> slots, absl::Span<const int32_t> tokens) override;
  void SetMask(int i, int32_t slot, absl::Span<const uint32_t> bits) override {
    masks_.Set(i, slot, bits);
  }
  void Abort(const absl::Status& why) override;

 private:
  // A batch under way, or its last one.
  struct Run {
    CudaExecutable* self = nullptr;
    int batch = 0;
    Ticket ticket = 0;
    OwnedEvent done;
    OwnedEvent after;  // the next run waits for it
    // For its draws, which come later: what the slots said as it was enqueued.
    std::vector<const SlotUpdate*> shortened;
    std::vector<int64_t> first_positions;  // [sequences]
    absl::Status status;                   // of the draws
    BatchResult result;
    // [sequences that draw]: guesses whose outcome the slots have not heard of; else empty.
    std::vector<int32_t> guesses;
  };

  CudaExecutable(const Program& program, const Limits& limits, const Bindings& bindings,
                 const DeviceFacts& facts);
  absl::Status Init(int threads);
  absl::Status CheckAborted();

  absl::Status TakeIn(int i);
  absl::Status Upload(int i);
  absl::Status CopyPages(const Batch& batch);
  absl::Status EnqueueDraws(int i);
  // On a thread of CUDA's, when the logits are there.
  static void Draw(void* run);
  absl::Status Draw(Run& run);
  absl::Status TakeBackGuesses();

  const Program program_;
  const Limits limits_;
  const Bindings bindings_;
  const DeviceFacts facts_;
  CudaKv* const kv_;
  BatchRules rules_;
  OwnedStream stream_;
  DeviceMemory memory_;
  PinnedMemory uploads_;  // [batches], as places_.uploads
  PinnedMemory drawn_;    // SetPair [batches][slots]
  PinnedMemory logits_;   // float [outputs, cols]
  std::unique_ptr<Blas> blas_;
  Workspace workspace_;
  std::unique_ptr<CompiledProgram> compiled_;
  std::unique_ptr<ThreadPool> pool_;

  std::optional<SlotStates> slots_;
  HostBatch rows_;                       // of the batch that is enqueued
  std::vector<SetPair> set_tokens_;      // that the next batch brings
  const SetPair* last_drawn_ = nullptr;  // by the batch that was enqueued last
  int32_t last_drawn_count_ = 0;
  std::array<Batch, kBatches> batches_;
  std::array<Run, kBatches> runs_;
  Ticket tickets_ = 0;
  bool warm_ = false;

  std::optional<Sampler> sampler_;  // used in the stream's order alone
  TokenMasks masks_;
  Mutex mutex_;
  absl::Status aborted_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace skein::kernels::cuda
