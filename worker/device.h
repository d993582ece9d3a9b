// Which device a rank computes on.
#pragma once

#include <optional>
#include <string_view>

#include "absl/status/statusor.h"
#include "base/device_kind.h"
#include "topology/machine.h"

namespace skein::worker {

struct RankDevice {
  topology::Device device;
  int gpu = 0;  // CUDA's number, where it is one
};

// The GPU of the rank's number on its host, where this program was built for GPUs and sees one,
// else the CPU; `asked` overrides. FailedPrecondition, with what was found and what to do, for a
// GPU or a driver that cannot be used, and for more ranks on a host than it has GPUs. Unimplemented
// where GPUs are asked of a program that was built without them.
absl::StatusOr<RankDevice> ChooseDevice(std::optional<DeviceKind> asked, int local_rank);

}  // namespace skein::worker
