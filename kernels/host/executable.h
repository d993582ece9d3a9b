// The base of executables on the host: slots, buffers, checks, collectives and draws.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/mutex.h"
#include "base/view.h"
#include "kernels/host/expert_counts.h"
#include "kernels/host/masks.h"
#include "kernels/host/memory.h"
#include "kernels/host/pooler.h"
#include "kernels/host/sampler.h"
#include "kernels/host/slots.h"
#include "kernels/ops/backend.h"
#include "kernels/ops/sizes.h"
#include "kernels/ops/validate.h"

namespace skein::kernels {

// Runs a batch as it is enqueued, on the calling thread: its operations in order, collective ones
// here and the others by Compute. A run waits for others in collectives and for masks only, so that
// an Abort must end these waits alone.
class HostExecutable : public Executable {
 public:
  absl::Status WarmUp() final;
  Batch& batch(int i) final { return batches_[i]; }
  View port(BufferId id, int i) final;
  absl::StatusOr<Ticket> Enqueue(int i) final;
  absl::StatusOr<bool> Wait(Ticket, Stream, absl::Time) final { return true; }
  void After(int, Stream) final {}
  const BatchResult& result(int i) const final { return results_[i]; }
  void SetTokens(absl::Span<const int32_t> slots, absl::Span<const int32_t> tokens) final;
  void SetMask(int i, int32_t slot, absl::Span<const uint32_t> bits) final {
    masks_.Set(i, slot, bits);
  }
  void Abort(const absl::Status& why) final;
  std::optional<ExpertLoad> expert_load() const final { return expert_counts_.Load(); }

 protected:
  HostExecutable(const Program& program, const Limits& limits, const Bindings& bindings);

  // Checks the Program against its bindings, and allocates the buffers. Call it before any batch.
  absl::Status Init();

  // Called with a batch that was checked, before the first operation of a run.
  virtual void Begin(const HostBatch& /*batch*/) {}
  // Computes any operation but a collective one.
  virtual void Compute(const Op& op, const HostBatch& batch) = 0;
  // Called after a collective operation has written the buffer.
  virtual void Wrote(BufferId /*id*/) {}
  // Calls task(i) for i in [0, tasks), on the threads that Compute uses.
  virtual void ForEach(int64_t tasks, absl::FunctionRef<void(int64_t)> task) = 0;

  const Program& program() const { return program_; }
  const Limits& limits() const { return limits_; }
  const WeightSpec& spec(WeightId id) const { return program_.weights[id].spec; }
  const Weights& weights() const { return *bindings_.weights; }
  ProductObserver* product_observer() const { return bindings_.products; }
  KvCache* kv() const { return bindings_.kv; }
  int64_t cols(BufferId id) const { return program_.buffers[id].cols; }
  float* data(BufferId id) const { return data_[id]; }
  float* row(BufferId id, int64_t r) const { return data_[id] + r * cols(id); }
  // Counts the rows that a buffer has in this batch.
  int64_t RowsOf(BufferId id, const HostBatch& batch) const {
    return program_.buffers[id].rows == BufferSpec::Rows::kTokens ? batch.rows() : batch.outputs();
  }

 private:
  absl::Status AllocateBuffers();
  absl::Status CopyPages(const Batch& batch);
  absl::Status RunOps();
  // These convert from and to ports that have the dtype of hops.
  void TakeInput(int i);
  void GiveOutput(int i);
  absl::Status Sample(int i);
  void Pool(int i);
  int64_t MaxRows(BufferId id) const { return BufferRows(program_.buffers[id], limits_); }

  const Program program_;
  const Limits limits_;
  const Bindings bindings_;
  ExpertCounts expert_counts_;
  BatchRules rules_;
  std::optional<SlotStates> slots_;  // set by Init
  std::optional<Sampler> sampler_;   // unset where the Program has no logits
  std::optional<Pooler> pooler_;     // set by WarmUp, where rows can be pooled
  std::array<Batch, kBatches> batches_;
  std::array<BatchResult, kBatches> results_;
  TokenMasks masks_;
  HostBatch rows_;  // of the batch that runs
  Ticket tickets_ = 0;
  bool warm_ = false;
  Mutex mutex_;
  absl::Status aborted_ ABSL_GUARDED_BY(mutex_);
  HostMemory memory_;                                  // all buffers
  std::array<std::vector<float*>, kBatches> storage_;  // [buffers], as a batch sees them
  std::array<std::vector<std::byte*>, kBatches>
      hops_;                  // [buffers], ports in another dtype; or null
  std::vector<float*> data_;  // of the batch that runs
};

}  // namespace skein::kernels
