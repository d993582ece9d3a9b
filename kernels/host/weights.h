// The base of weights on the host: one piece of memory, and staging for rows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "kernels/host/memory.h"
#include "kernels/ops/backend.h"

namespace skein::kernels {

// Packs rows as they are loaded, on the calling thread.
class HostWeights : public Weights {
 public:
  int64_t bytes() const final { return memory_.bytes(); }
  int64_t bytes(WeightId weight) const final { return offsets_[weight + 1] - offsets_[weight]; }
  absl::StatusOr<std::unique_ptr<Staging>> Stage(int64_t bytes) final;
  absl::Status Load(const WeightRows& rows, std::unique_ptr<Staging> staged) final;
  absl::Status FinishLoading() final { return absl::OkStatus(); }
  absl::StatusOr<std::vector<float>> ReadVector(WeightId weight) const final {
    const auto* const begin = reinterpret_cast<const float*>(data(weight));
    return std::vector<float>(begin, begin + spec(weight).cols);
  }

 protected:
  explicit HostWeights(const Program& program);

  // Checks the weights, and allocates as many bytes as `bytes_of` says for each.
  absl::Status Allocate(int64_t (*bytes_of)(const WeightSpec&));
  // Packs data [rows.count, cols], unaligned, of rows that were checked. Writes these rows only.
  virtual void Pack(const WeightRows& rows, const std::byte* data) = 0;

  const WeightSpec& spec(WeightId weight) const { return specs()[weight].spec; }
  std::byte* data(WeightId weight) const { return memory_.data() + offsets_[weight]; }

 private:
  // Keeps staging memory for the next rows. A HostStaging may outlive the weights.
  struct Pool {
    Mutex mutex;
    std::vector<std::vector<std::byte>> free ABSL_GUARDED_BY(mutex);
  };
  class HostStaging;

  HostMemory memory_;
  std::vector<int64_t> offsets_;  // [weights + 1]
  const std::shared_ptr<Pool> pool_;
};

}  // namespace skein::kernels
