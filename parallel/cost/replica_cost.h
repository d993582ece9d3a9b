// What a replica of a model does in a second, on given machines: predicted from what its stages
// take. A pipeline's steps are those of parallel/pipeline. Pure; any thread.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "model/config/model_config.h"
#include "parallel/cost/stage_cost.h"
#include "parallel/pipeline/simulate.h"
#include "topology/topology.h"

namespace skein::cost {

// Requests as they come: each of the same length, and as many at once at any time.
struct Workload {
  int64_t prompt_tokens = 512;
  int64_t output_tokens = 256;
  int64_t concurrency = 1;

  friend bool operator==(const Workload&, const Workload&) = default;
};

struct ReplicaCost {
  absl::Duration prompt;  // until the first token of a prompt that nobody delays
  absl::Duration ttft;    // the same on the average, waiting for others included
  absl::Duration tpot;    // from token to token of one answer, prompts of others between included
  absl::Duration step;    // of decodes alone
  double output_tokens_per_s = 0;
  double bubble = 0;  // idle share of all stages' time in steady decode, or of cores they share
  double exchange_share = 0;  // of a step's time on the stage that takes longest
};

// InvalidArgument where Simulate refuses the pipeline. Costs some microseconds for one stage, and
// some 100 ns for each stage, micro-batch and step of the 16 that are simulated for several.
absl::StatusOr<ReplicaCost> PredictReplica(const topology::Topology& topology,
                                           const model::ModelConfig& model, const Replica& replica,
                                           const Workload& workload);

// The time of a step of steady decode, each sequence `context` tokens long. Errors as above.
absl::StatusOr<absl::Duration> DecodeStepTime(const topology::Topology& topology,
                                              const model::ModelConfig& model,
                                              const Replica& replica, int64_t context);

// So many steps of steady decode: what the stages do when. Errors as above.
absl::StatusOr<schedule::Timeline> SimulateDecodes(const topology::Topology& topology,
                                                   const model::ModelConfig& model,
                                                   const Replica& replica, const Workload& workload,
                                                   int32_t steps);

}  // namespace skein::cost
