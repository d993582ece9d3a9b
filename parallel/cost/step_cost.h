// What a step with prompts in it takes a replica. Pure; any thread.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "model/config/model_config.h"
#include "parallel/cost/stage_cost.h"
#include "topology/topology.h"

namespace skein::cost {

// What the stages of a pipeline did before a step.
enum class Before : uint8_t {
  kNothing,  // they were idle
  kDecodes,  // a step of the same decodes
  kAlike,    // a step as this one
};

// The micro-batches of a step of `rows`, as worker/scheduler/micro_batches.h cuts them.
std::vector<Batch> CutStep(const Replica& replica, const Batch& rows);

// The time from the results of the step before, or from an idle replica's order, to those of a step
// of `rows`. Costs some microseconds for each stage, shard and unlike micro-batch. InvalidArgument
// where Simulate refuses the pipeline.
absl::StatusOr<absl::Duration> StepTime(const topology::Topology& topology,
                                        const model::ModelConfig& model, const Replica& replica,
                                        const Batch& rows, Before before);

}  // namespace skein::cost
