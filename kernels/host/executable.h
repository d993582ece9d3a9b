// What executables of back ends on the host share: buffers, checks, collectives.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "base/view.h"
#include "kernels/host/memory.h"
#include "kernels/ops/backend.h"
#include "kernels/ops/validate.h"

namespace skein::kernels {

// Runs the operations in order; collectives here, the others by Compute.
class HostExecutable : public Executable {
 public:
  absl::Status Run(const Batch& batch) final;
  View port(BufferId id) final;

 protected:
  HostExecutable(const Program& program, Bindings bindings);

  // Checks the Program against its bindings, and allocates the buffers. Before any Run.
  absl::Status Init();

  // `batch` was checked. Called before the first operation of a run.
  virtual void Begin(const Batch& /*batch*/) {}
  // Any operation but a collective one.
  virtual void Compute(const Op& op, const Batch& batch) = 0;

  const Program& program() const { return program_; }
  const PackedWeight& weight(WeightId id) const { return *bindings_.weights[id]; }
  KvCache* kv() const { return bindings_.kv; }
  int64_t cols(BufferId id) const { return program_.buffers[id].cols; }
  float* data(BufferId id) const { return data_[id]; }
  float* row(BufferId id, int64_t r) const { return data_[id] + r * cols(id); }
  // Rows that a buffer has in this batch.
  int64_t RowsOf(BufferId id, const Batch& batch) const {
    return program_.buffers[id].rows == BufferSpec::Rows::kTokens ? batch.rows() : batch.outputs();
  }

 private:
  absl::Status AllGather(const AllGatherColumnsOp& op, int64_t rows);
  int64_t MaxRows(BufferId id) const;
  int64_t MaxElements(BufferId id) const { return MaxRows(id) * cols(id); }

  const Program program_;
  const Bindings bindings_;
  BatchRules rules_;
  HostMemory memory_;         // all buffers, then the shards that an all-gather puts in order
  std::vector<float*> data_;  // [buffers]
  float* gathered_ = nullptr;
};

}  // namespace skein::kernels
