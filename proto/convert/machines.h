// Machines as a planner sees them, as messages.
#pragma once

#include "absl/status/statusor.h"
#include "proto/topology.pb.h"
#include "topology/topology.h"

namespace skein::convert {

// Hosts that differ in their numbered names alone become one with a count.
topology::v1::Topology ToProto(const topology::Topology& topology);

// InvalidArgument names the field and says what is wrong, as topology::CheckTopology does.
absl::StatusOr<topology::Topology> FromProto(const topology::v1::Topology& wire);

}  // namespace skein::convert
