// Finds out what the node that a process is on consists of.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "topology/host/gpus.h"
#include "topology/topology.h"

namespace skein::topology {

struct DetectOptions {
  // Put before every path of /sys, /proc and /dev that is read; tests have folders of their own.
  std::string root;
  // Instead of this node's processors, in hwloc's synthetic form, for tests.
  std::string synthetic_processors;
  // Paths or names for the loader; none: the system's libnvidia-ml.so.1.
  std::vector<std::string> nvml_libraries;
  // CUDA_VISIBLE_DEVICES' value. Unset: all GPUs; empty: none, and their driver is not asked.
  std::optional<std::string> visible_devices;
};

struct DetectedHost {
  Host host;
  std::vector<GpuHealth> health;  // [host.interconnect.gpus]
};

// Describes this node: cores and memory that the process may use (DescribeHost); sockets, caches
// and NUMA nodes of the whole node (hwloc); GPUs that CUDA would show it, their NVLinks and health
// (NVML); NICs, and which PCIe paths lie between all of these (/sys). Rates, links and exchanges
// stay empty: they are measured. A result passes CheckTopology. Files that are missing or garbled
// are not told; without an NVML there are no GPUs.
//
// Reads some hundred files; costs some milliseconds, and as many a GPU. It changes nothing.
// FailedPrecondition and errors of the system as DescribeHost has them; Unavailable, with NVML's
// words, where the driver or a visible GPU cannot be asked; Unimplemented where it is too old;
// InvalidArgument for options.synthetic_processors.
absl::StatusOr<DetectedHost> DetectHostAndHealth(const DetectOptions& options = {});
absl::StatusOr<Host> DetectHost(const DetectOptions& options = {});

}  // namespace skein::topology
