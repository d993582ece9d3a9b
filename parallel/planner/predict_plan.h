// What a plan of a job will do, by the cost model. Pure.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "model/config/model_config.h"
#include "parallel/cost/replica_cost.h"
#include "parallel/plan/plan.h"
#include "parallel/planner/goal.h"
#include "parallel/planner/host_kinds.h"
#include "topology/machine.h"
#include "topology/topology.h"

namespace skein::plan {

// A replica of a plan as the cost model sees it; `topology` is TopologyOf(machine). Requests are
// spread evenly over replicas; one runs as many at once as its limits and pages allow.
cost::Replica ReplicaOfPlan(const topology::Machine& machine, const topology::Topology& topology,
                            const model::ModelConfig& model, const Plan& plan, int32_t dp_rank,
                            const cost::Workload& workload);

// kinds: of `topology`. Errors are PredictReplica's.
absl::StatusOr<Standing> PredictPlan(const topology::Machine& machine,
                                     const topology::Topology& topology, const HostKinds& kinds,
                                     const model::ModelConfig& model, const Plan& plan,
                                     const cost::Workload& workload);

// A step of a replica, or the mean of several.
struct StepMeans {
  double decodes = 0;         // rows, each of a sequence
  double context = 0;         // tokens before each of these
  double prompts = 0;         // those that it has rows of
  double prompt_rows = 0;     // of all of these
  double prompt_context = 0;  // tokens before each of these rows
  double outputs = 0;         // of these rows, those with logits
  // Shares of the steps with prompts: those that found the replica idle, and those behind a step
  // that decoded alone.
  double behind_nothing = 0;
  double behind_decodes = 0;
};

// The time of such a step, all replicas alike. InvalidArgument for more than a replica of the plan
// computes at once, and for a longer context than the plan's; other errors are PredictReplica's.
absl::StatusOr<absl::Duration> PredictStep(const topology::Machine& machine,
                                           const topology::Topology& topology,
                                           const model::ModelConfig& model, const Plan& plan,
                                           int32_t dp_rank, const StepMeans& means);

// What a prediction rests on.
struct Evidence {
  bool measured = false;  // rather than assumed, of every device
  double spread = 0;      // topology::DeviceRates', the largest; 0: not measured
};
Evidence EvidenceOf(const topology::Topology& topology);

// As a plan holds it.
Prediction PredictionOf(const topology::Topology& topology, const Standing& standing,
                        const cost::Workload& workload);

}  // namespace skein::plan
