// A Program that one kernel runs, a step at a time.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/cuda/cuda_memory.h"
#include "kernels/cuda/persistent/schedule.h"
#include "kernels/cuda/persistent/step.h"
#include "kernels/cuda/resources.h"
#include "kernels/cuda/workspace.h"
#include "kernels/ops/backend.h"
#include "kernels/ops/program.h"

namespace skein::kernels::cuda {

class PersistentProgram {
 public:
  // For batches of up to `most_rows` rows. Workspace as for CompileProgram, whose `step` has the
  // arenas, and whose multiprocessors nothing else keeps while a step runs; all of it outlives
  // this. Unimplemented, with what it is, for Programs and devices that the kernel cannot run on.
  static absl::StatusOr<std::unique_ptr<PersistentProgram>> Create(const Program& program,
                                                                   const Bindings& bindings,
                                                                   const Workspace& workspace,
                                                                   int64_t most_rows);

  bool Takes(const BatchShape& shape) const { return shape.rows > 0 && shape.rows <= most_rows_; }
  // Launches a step of such a batch, which the workspace has, without padding. Its sums over shards
  // are those of the Program. One thread at a time.
  absl::Status Enqueue(const BatchShape& shape);

  // Makes the step that runs, and all that follow, end soon; their data are void. Any thread.
  void Abort();
  // Whether a step has waited too long, for one of its own blocks or for another shard: Internal,
  // with where.
  absl::Status Check() const;

 private:
  PersistentProgram(const Program& program, const Workspace& workspace, int64_t most_rows)
      : program_(program), workspace_(workspace), most_rows_(most_rows) {}
  absl::Status Init(const Bindings& bindings);
  absl::Status MeetShards(const Bindings& bindings);
  absl::Status ScaleGains(const CudaWeights& weights);
  absl::StatusOr<StepOp> Bind(const ScheduledOp& op, const CudaWeights& weights, const CudaKv& kv,
                              std::vector<CUtensorMap>& maps) const;

  const Program& program_;
  const Workspace& workspace_;
  int64_t most_rows_;
  DType dtype_ = DType::kBF16;
  Schedule schedule_;
  PersistentStep step_;  // but for what differs from batch to batch
  struct Shared {
    DeviceMemory ops, shares;
  };
  Shared few_, many_;  // for steps of up to kFewRows rows, and of more
  DeviceMemory maps_, given_;
  // What is multiplied by in the place of a gain, and the power of two that is left over.
  struct ScaledGain {
    DeviceMemory gain;
    float left = 1;
  };
  std::map<ArenaPlace, ScaledGain> scaled_;  // by where the norm lies
  PinnedMemory report_;
  int64_t arena_bytes_ = 0;  // of one of the two
  int64_t steps_ = 0;
  int32_t rows_before_ = 0;  // of the last step
};

}  // namespace skein::kernels::cuda
