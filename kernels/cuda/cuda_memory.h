// Weights and KV caches of the CUDA back end.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "kernels/cuda/kv_layout.h"
#include "kernels/cuda/resources.h"
#include "kernels/ops/backend.h"

namespace skein::kernels::cuda {

// Matrices of DTypeOfMatrices, row-major as they come, and vectors as F32. A matrix of gates and
// ups whose product, with a bias or without, only a GluOp reads is interleaved, so that a tile
// of the product has both: 8 rows of gates, their 8 ups, the next 8 gates ...
class CudaWeights final : public Weights {
 public:
  // Unimplemented for a matrix of another dtype, with its name.
  static absl::StatusOr<std::unique_ptr<CudaWeights>> Create(const Program& program, int device);
  ~CudaWeights() override;

  int64_t bytes() const override { return memory_.bytes(); }
  int64_t bytes(WeightId weight) const override { return offsets_[weight + 1] - offsets_[weight]; }
  absl::StatusOr<std::unique_ptr<Staging>> Stage(int64_t bytes) override;
  absl::Status Load(const WeightRows& rows, std::unique_ptr<Staging> staged) override;
  absl::Status Make(const WeightRows& rows, const CountedRows& numbers) override;
  absl::StatusOr<std::vector<float>> ReadVector(WeightId weight) const override;
  absl::Status FinishLoading() override;

  const std::byte* data(WeightId weight) const { return memory_.data() + offsets_[weight]; }
  const float* floats(WeightId weight) const {
    return reinterpret_cast<const float*>(data(weight));
  }
  bool interleaved(WeightId weight) const { return interleaved_[weight]; }

 private:
  class PinnedStaging;
  // Pinned memory, which may still be read by copies that `copied` ends.
  struct Lent {
    PinnedMemory memory;
    OwnedEvent copied;
  };

  CudaWeights(const Program& program, int device) : Weights(program), device_(device) {}
  absl::Status Init(const Program& program);
  // Rows [first, first + count) of a weight, as they lie in `from`.
  absl::Status CopyRows(const WeightRows& rows, const std::byte* from);
  void GiveBack(std::unique_ptr<Lent> lent);

  const int device_;
  DeviceMemory memory_;
  std::vector<int64_t> offsets_;  // [weights + 1]
  std::vector<bool> interleaved_;
  OwnedStream stream_;  // of copies

  Mutex mutex_;
  CondVar changed_;
  std::deque<std::unique_ptr<Lent>> idle_ ABSL_GUARDED_BY(mutex_);  // the oldest copies first
  int64_t staging_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
};

// In the device's memory, or for swapped pages in pinned memory of the host. Layers as in
// kv_layout.h, one after the other.
class CudaKv final : public KvCache {
 public:
  static absl::StatusOr<std::unique_ptr<CudaKv>> Create(const KvSpec& spec, int device,
                                                        bool on_host);

  absl::Status CopyPage(const KvCache& from, int32_t from_page, int32_t to_page) override;
  // The same on a stream, for pages that were checked.
  absl::Status EnqueueCopy(const CudaKv& from, int32_t from_page, int32_t to_page, Stream stream);

  KvLayer layer(int64_t layer) const;

 private:
  CudaKv(const KvSpec& spec, int device) : KvCache(spec), device_(device) {}
  std::byte* page(int32_t page) const;
  int64_t layer_stride() const;

  const int device_;
  DeviceMemory device_memory_;
  PinnedMemory host_memory_;
  std::byte* data_ = nullptr;
  OwnedStream stream_;  // of CopyPage
};

}  // namespace skein::kernels::cuda
