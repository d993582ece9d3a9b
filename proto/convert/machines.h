// Machines as a planner sees them, as messages and as JSON.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "proto/topology.pb.h"
#include "topology/topology.h"

namespace skein::convert {

// Hosts that differ in their numbered names alone become one with a count.
topology::v1::Topology ToProto(const topology::Topology& topology);

// InvalidArgument names the field and says what is wrong, as topology::CheckTopology does.
absl::StatusOr<topology::Topology> FromProto(const topology::v1::Topology& wire);

inline constexpr int64_t kMaxTopologyBytes = int64_t{16} << 20;  // of 1,024 unlike hosts

// As protobuf maps messages to JSON, with the fields' own names, indented.
std::string TopologyToJson(const topology::Topology& topology);

// InvalidArgument for what is no such JSON: syntax by line and column, fields by name. A field that
// is unknown is an error: it may be misspelt.
absl::StatusOr<topology::Topology> TopologyFromJson(std::string_view json);

}  // namespace skein::convert
