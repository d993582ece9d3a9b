#include "proto/convert/topology.h"

#include "absl/strings/str_cat.h"

namespace skein::convert {

topology::v1::Node ToProto(const topology::Node& node) {
  topology::v1::Node wire;
  wire.set_host(node.host);
  wire.set_cores(node.cores);
  wire.set_memory_bytes(node.memory_bytes);
  return wire;
}

absl::StatusOr<topology::Node> FromProto(const topology::v1::Node& wire) {
  if (wire.host().empty()) return absl::InvalidArgumentError("node: host is empty");
  if (wire.cores() < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("node ", wire.host(), ": cores is ", wire.cores(), "; at least 1 is needed"));
  }
  if (wire.memory_bytes() < 0) {
    return absl::InvalidArgumentError(absl::StrCat("node ", wire.host(), ": memory_bytes is ",
                                                   wire.memory_bytes(), ", less than nothing"));
  }
  return topology::Node{wire.host(), wire.cores(), wire.memory_bytes()};
}

}  // namespace skein::convert
