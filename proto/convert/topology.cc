#include "proto/convert/topology.h"

#include <iterator>
#include <string>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "base/device_kind.h"
#include "topology/cpus.h"

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
  if (wire.cores() < 1 || wire.cores() > topology::kMaxProcessors) {
    return absl::InvalidArgumentError(absl::StrCat("node ", wire.host(), ": cores is ",
                                                   wire.cores(), "; 1 to ",
                                                   topology::kMaxProcessors, " can be"));
  }
  if (wire.memory_bytes() < 0) {
    return absl::InvalidArgumentError(absl::StrCat("node ", wire.host(), ": memory_bytes is ",
                                                   wire.memory_bytes(), ", less than nothing"));
  }
  return topology::Node{wire.host(), wire.cores(), wire.memory_bytes()};
}

topology::v1::Device ToProto(const topology::Device& device) {
  topology::v1::Device wire;
  wire.set_kind(std::string(DeviceKindName(device.kind)));
  wire.set_name(device.name);
  wire.set_memory_bytes(device.memory_bytes);
  wire.set_nccl(device.nccl);
  wire.set_peers(device.peers);
  return wire;
}

absl::StatusOr<topology::Device> FromProto(const topology::v1::Device& wire) {
  topology::Device device{.name = wire.name(),
                          .memory_bytes = wire.memory_bytes(),
                          .nccl = wire.nccl(),
                          .peers = wire.peers()};
  const auto* const kind = absl::c_find_if(
      kDeviceKinds, [&](DeviceKind kind) { return wire.kind() == DeviceKindName(kind); });
  if (kind == std::end(kDeviceKinds)) {
    return absl::InvalidArgumentError("device: kind is unknown; there are: cpu, cuda");
  }
  device.kind = *kind;
  if (device.name.empty()) return absl::InvalidArgumentError("device: name is empty");
  if (device.memory_bytes < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("device: memory_bytes is ", device.memory_bytes, ", less than nothing"));
  }
  return device;
}

}  // namespace skein::convert
