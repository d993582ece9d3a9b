// Draws what the stages of a replica do while it decodes.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "model/config/model_config.h"
#include "parallel/cost/replica_cost.h"
#include "topology/topology.h"

namespace skein::client {

// Writes some steps of steady decode, as the cost model predicts them, into an SVG file. `name`
// says of what, "llama3-8b, tp=2,pp=2". Errors name the flag --gantt.
absl::Status DrawGantt(const std::string& file, const std::string& name,
                       const topology::Topology& topology, const model::ModelConfig& model,
                       const cost::Replica& replica, const cost::Workload& workload);

}  // namespace skein::client
