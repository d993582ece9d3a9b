// Which device a rank computes on.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/device_kind.h"
#include "kernels/cuda/cuda_backend.h"
#include "topology/host/nvml.h"
#include "topology/machine.h"

namespace skein::worker {

// "auto", "graph" or "persistent".
absl::StatusOr<kernels::DecodeForm> ParseDecodeForm(const std::string& text);
std::string_view DecodeFormName(kernels::DecodeForm form);

struct RankDevice {
  topology::Device device;
  int gpu = 0;       // CUDA's number, where it is one
  std::string uuid;  // the GPU's, 32 digits
  bool mig = false;  // it is a slice of one
  std::string pci_address;
  std::string no_gpu;  // why it is none, where nobody asked for a CPU
  std::string users;   // who has its memory, where more than a tenth of it is taken
};

// The UUIDs of the GPUs that a rank sees, by CUDA's numbers: a launcher may show each rank other
// ones, or number them otherwise.
using SeenGpus = std::vector<std::string>;

// For the ranks of a host to tell each other: none where a CPU is asked for or no GPU can be used.
SeenGpus SeeGpus(std::optional<DeviceKind> asked);

struct DeviceChoice {
  std::optional<DeviceKind> asked;  // none: a GPU where there is one
  bool oversubscribe = false;       // several ranks may have one GPU
  int local_rank = 0;               // among the ranks of this host
  std::vector<SeenGpus> seen;       // by these ranks; empty: the rank is alone
};

// Returns the rank's GPU where CUDA can be used and sees one, else the CPU: of those that it sees
// the first one that the fewest ranks of the host before it have. Ranks that share a GPU each have
// an equal part of what is free of its memory. What needs CUDA is opened here or in SeeGpus, for
// the first time, unless a CPU is asked for. Where a GPU is asked for, fails as ListCudaDevices,
// whose reasons are `no_gpu` where nothing is asked for. FailedPrecondition, with what was found
// and what to do, for a GPU that there are no kernels for, and for one that several ranks have
// unless they may share.
absl::StatusOr<RankDevice> ChooseDevice(const DeviceChoice& choice);

// Where the device is a slice of a GPU (MIG), says so, and names it by its UUID, too, since slices
// of one GPU have one name.
void NameSlice(const absl::StatusOr<topology::GpuState>& state, RankDevice& device);

// `users` of a GPU in this state.
std::string NameUsers(const absl::StatusOr<topology::GpuState>& state);

// What a rank has of the threads that its plan gives it, of an equal part of its host's cores, once
// it is bound to `cores`; an error: nobody knows, and it has all. At least 1. Pure.
int32_t ThreadsWithin(int32_t planned, const absl::StatusOr<int32_t>& cores);

// Unimplemented, with what to do instead, for steps to be profiled (kernels::CudaOptions) on a CPU.
absl::Status CheckProfile(int steps, const RankDevice& device);
// Likewise for a form of decoding that only GPUs have.
absl::Status CheckDecodeForm(kernels::DecodeForm form, const RankDevice& device);

// A rank's part of its host's GPUs.
struct GpuShare {
  int gpu = 0;      // CUDA's number
  int sharers = 1;  // ranks that have the GPU
};
// Pure; `seen` has the rank's own. Errors as ChooseDevice's for a GPU of several ranks, and for
// none.
absl::StatusOr<GpuShare> ShareOfGpus(const DeviceChoice& choice);

}  // namespace skein::worker
