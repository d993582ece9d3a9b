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

struct DeviceChoice {
  std::optional<DeviceKind> asked;  // none: a GPU where there is one
  bool oversubscribe = false;       // several ranks may have one GPU
  int local_rank = 0;               // among the ranks of this host
  int local_size = 1;
};

// Returns the GPU of the rank's number on its host, where this program was built for GPUs and sees
// one, else the CPU. Ranks that share a GPU each have an equal part of its memory.
// FailedPrecondition, with what was found and what to do, for a GPU or a driver that cannot be
// used, and for more ranks on a host than it has GPUs unless they may share. Unimplemented where
// GPUs are asked of a program that was built without them.
absl::StatusOr<RankDevice> ChooseDevice(const DeviceChoice& choice);

}  // namespace skein::worker
