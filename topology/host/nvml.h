// What the driver's NVML tells of a GPU: whether it is a slice, what of its memory is free, and who
// has the rest.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "topology/host/gpu_process.h"

namespace skein::topology {

struct GpuState {
  std::string uuid;  // "GPU-..." or "MIG-..."
  bool mig = false;  // a slice of a GPU
  int64_t free_bytes = 0;
  int64_t total_bytes = 0;
  std::vector<GpuProcess> processes;  // that compute on it, the largest first
};

// Returns the state of the GPU whose UUID has these 32 digits (kernels::ListCudaDevices). Opens the
// first of `libraries`, paths or names for the loader, that is there, and closes it again; costs
// some milliseconds. Unimplemented where there is none; NotFound for a GPU that NVML does not see;
// Unavailable, with NVML's words, for one that it cannot ask.
absl::StatusOr<GpuState> AskNvml(std::string_view uuid_digits,
                                 absl::Span<const std::string> libraries = {});

// "30.20 GiB of 139.80 GiB are free; python (pid 4711) has 100.00 GiB, worker (pid 12) 9.60 GiB".
// Processes beyond the first few are counted.
std::string FormatGpuUsers(const GpuState& state);

// "0123...ef" as NVML writes it: "GPU-01234567-89ab-cdef-0123-456789abcdef".
std::string NvmlUuid(std::string_view prefix, std::string_view digits);

}  // namespace skein::topology
