// Machines as a planner sees them, as JSON: the format of Skein's own files.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "topology/topology.h"

namespace skein::convert {

inline constexpr int64_t kMaxTopologyBytes = int64_t{16} << 20;  // of 1,024 unlike hosts

// As protobuf maps messages to JSON, with the fields' own names, indented.
std::string TopologyToJson(const topology::Topology& topology);

// InvalidArgument for what is no such JSON: syntax by line and column, fields by line and name. A
// field that is unknown is an error: it may be misspelt.
absl::StatusOr<topology::Topology> TopologyFromJson(std::string_view json);

}  // namespace skein::convert
