// Describes the host that a rank runs on.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "topology/machine.h"

namespace skein::topology {

struct HostOptions {
  // Put before every path that is read; tests have a folder with files of their own.
  std::string root;
  // Instead of the calling thread's affinity.
  std::optional<int32_t> affinity_cores;
};

// Finds the host's name, cores and memory. Cores: what the calling thread's affinity allows
// (cores.h), at most the cgroups' CPU quota (rounded down, at least 1). Memory: MemAvailable, at
// most what is left under the memory limit of the process's cgroup and of each one above it. Both
// versions of cgroups are read; page cache does not count as used, since the kernel gives it up
// before it refuses memory. Reads a few files. FailedPrecondition when /proc/meminfo does not say
// what is available.
absl::StatusOr<Node> DescribeHost(const HostOptions& options = {});

// What the host has free, whatever a cgroup leaves of it. FailedPrecondition as above.
absl::StatusOr<int64_t> FreeMemory(const HostOptions& options = {});

// The processor: its name is the first "model name" of /proc/cpuinfo, or "CPU" where there is none.
Device DescribeCpu(const HostOptions& options = {});

}  // namespace skein::topology
