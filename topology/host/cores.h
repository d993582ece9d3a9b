// The cores that a process may compute on.
#pragma once

#include <hwloc.h>

#include <cstdint>

#include "absl/status/statusor.h"

namespace skein::topology {

// Cores of the calling thread's affinity, as hwloc tells them. Two hardware threads of one core
// share its arithmetic: they count once.
absl::StatusOr<int32_t> AffinityCores();

// Cores of which at least one hardware thread is in `cpus`; the hardware threads where the system
// tells of no cores.
int32_t CoresOf(hwloc_topology_t topology, hwloc_const_cpuset_t cpus);

}  // namespace skein::topology
