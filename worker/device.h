// Which device a rank computes on.
#pragma once

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/device_kind.h"
#include "topology/machine.h"

namespace skein::worker {

// "cpu" or "cuda".
absl::StatusOr<DeviceKind> ParseDeviceKind(const std::string& text);

struct RankDevice {
  topology::Device device;
  int gpu = 0;         // CUDA's number, where it is one
  std::string no_gpu;  // why it is none, where nobody asked for a CPU
};

struct DeviceChoice {
  std::optional<DeviceKind> asked;  // none: a GPU where there is one
  bool oversubscribe = false;       // several ranks may have one GPU
  int local_rank = 0;               // among the ranks of this host
  int local_size = 1;
};

// Returns the GPU of the rank's number on its host where CUDA can be used and sees one, else the
// CPU. Ranks that share a GPU each have an equal part of its memory. What needs CUDA is opened
// here, for the first time, unless a CPU is asked for. Where a GPU is asked for, fails as
// CountCudaDevices, whose reasons are `no_gpu` where nothing is asked for. FailedPrecondition, with
// what was found and what to do, for a GPU that there are no kernels for, and for more ranks on a
// host than it has GPUs unless they may share.
absl::StatusOr<RankDevice> ChooseDevice(const DeviceChoice& choice);

// Unimplemented, with what to do instead, for steps to be profiled (kernels::CudaOptions) on a CPU.
absl::Status CheckProfile(int steps, const RankDevice& device);

// A rank's part of its host's GPUs.
struct GpuShare {
  int gpu = 0;      // CUDA's number
  int sharers = 1;  // ranks that the GPU has at most
};
// Pure. Errors as ChooseDevice's for too many ranks, and for no GPU.
absl::StatusOr<GpuShare> ShareOfGpus(const DeviceChoice& choice, int gpus);

}  // namespace skein::worker
