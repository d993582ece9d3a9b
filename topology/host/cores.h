// The cores that a process may compute on.
#pragma once

#include <hwloc.h>

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "topology/cpus.h"

namespace skein::topology {

// Counts the cores of the calling thread's affinity, by hwloc. Two hardware threads of one core
// share its arithmetic, so they count once.
absl::StatusOr<int32_t> AffinityCores();

// Each of these cores: its hardware threads that the affinity allows.
absl::StatusOr<std::vector<Cpus>> AffinityCpus();

// A core for each of so many threads that the calling one will have, where AffinityCpus has just as
// many. None where it has more or fewer: a scheduler shares those out better.
std::vector<Cpus> CoresOfThreads(int32_t threads);

// CacheBytesOf these cores.
absl::StatusOr<int64_t> AffinityCacheBytes();

// Bytes of the L3 caches of `cpus`; 0 where the system tells of none.
int64_t CacheBytesOf(hwloc_topology_t topology, hwloc_const_cpuset_t cpus);

// Counts the cores that have at least one hardware thread in `cpus`. Counts hardware threads where
// the system tells of no cores.
int32_t CoresOf(hwloc_topology_t topology, hwloc_const_cpuset_t cpus);

}  // namespace skein::topology
