// What a rank reports of its node, on the wire and back.
#pragma once

#include "absl/status/statusor.h"
#include "proto/topology.pb.h"
#include "topology/machine.h"

namespace skein::convert {

topology::v1::Node ToProto(const topology::Node& node);

// InvalidArgument for a node without name or cores, or with negative memory (0: all is taken).
absl::StatusOr<topology::Node> FromProto(const topology::v1::Node& wire);

}  // namespace skein::convert
