// A whole replica in one process: every rank of a layout as a thread, over in-process
// communicators. For tests of what layouts compute.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "kernels/ops/backend.h"
#include "model/config/model_config.h"
#include "model/format/tensor_source.h"
#include "parallel/plan/plan.h"
#include "worker/engine/replica_state.h"
#include "worker/engine/stage.h"

namespace skein::worker {

struct LocalReplicaOptions {
  plan::Layout layout;  // one replica: data is 1
  int64_t page_size = 16;
  int64_t pages = 256;
  int64_t max_rows = 256;
  std::function<std::unique_ptr<kernels::Backend>()> make_backend;  // one a rank
  std::function<void(const TraceEvent&)> trace;                     // may be null
};

class LocalReplica {
 public:
  // `tensors` outlives the replica.
  static absl::StatusOr<std::unique_ptr<LocalReplica>> Create(const model::ModelConfig& config,
                                                              const model::TensorSource& tensors,
                                                              const LocalReplicaOptions& options);
  ~LocalReplica();

  // Runs the order on all ranks at once; the first error of any rank.
  absl::StatusOr<std::vector<SampledRow>> Run(const StepOrder& order);

  // Serves the requests to their end, `scheduler` deciding; answers by request.
  absl::StatusOr<std::map<RequestId, std::vector<int32_t>>> Generate(
      const std::vector<GenerationRequest>& requests, SchedulerLimits scheduler);

  // The logits of every sampled row so far, by request and position.
  const std::map<std::pair<RequestId, int64_t>, std::vector<float>>& logits() const {
    return logits_;
  }

 private:
  struct Rank;
  LocalReplica() = default;

  model::ModelConfig config_;
  LocalReplicaOptions options_;
  std::vector<std::unique_ptr<Rank>> ranks_;
  std::map<std::pair<RequestId, int64_t>, std::vector<float>> logits_;
};

}  // namespace skein::worker
