// What a rank reports of its node, on the wire and back.
#pragma once

#include "absl/status/statusor.h"
#include "proto/topology.pb.h"
#include "topology/machine.h"

namespace skein::convert {

topology::v1::Node ToProto(const topology::Node& node);
topology::v1::Device ToProto(const topology::Device& device);

// InvalidArgument for a node without name or cores, or with negative memory (0: all is taken).
absl::StatusOr<topology::Node> FromProto(const topology::v1::Node& wire);
// InvalidArgument for a kind that is unknown, no name, or negative memory.
absl::StatusOr<topology::Device> FromProto(const topology::v1::Device& wire);

}  // namespace skein::convert
