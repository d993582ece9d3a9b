#include "topology/host/cores.h"

#include <errno.h>

#include <algorithm>
#include <limits>
#include <memory>

#include "base/status_macros.h"
#include "base/status_util.h"

namespace skein::topology {
namespace {

template <typename T, void (*kFree)(T*)>
struct Freer {
  void operator()(T* object) const { kFree(object); }
};
using Topology = std::unique_ptr<hwloc_topology, Freer<hwloc_topology, hwloc_topology_destroy>>;
using Bitmap = std::unique_ptr<hwloc_bitmap_s, Freer<hwloc_bitmap_s, hwloc_bitmap_free>>;

// The machine, and what of it the calling thread may use.
struct Affinity {
  Topology topology;
  Bitmap cpus;
};
absl::StatusOr<Affinity> FindAffinity() {
  hwloc_topology_t raw = nullptr;
  if (hwloc_topology_init(&raw) != 0) return ErrnoStatus(errno, "hwloc_topology_init");
  Affinity affinity = {Topology(raw), Bitmap(hwloc_bitmap_alloc())};
  if (hwloc_topology_load(raw) != 0) return ErrnoStatus(errno, "hwloc_topology_load");
  if (hwloc_get_cpubind(raw, affinity.cpus.get(), HWLOC_CPUBIND_THREAD) != 0) {
    return ErrnoStatus(errno, "hwloc_get_cpubind");
  }
  return affinity;
}

// `type`: of what has processors.
hwloc_obj_t Next(hwloc_topology_t topology, hwloc_const_cpuset_t cpus, hwloc_obj_type_t type,
                 hwloc_obj_t before) {
  return hwloc_get_next_obj_covering_cpuset_by_type(topology, cpus, type, before);
}

}  // namespace

absl::StatusOr<int32_t> AffinityCores() {
  SKEIN_ASSIGN_OR_RETURN(const Affinity affinity, FindAffinity());
  return CoresOf(affinity.topology.get(), affinity.cpus.get());
}

absl::StatusOr<std::vector<Cpus>> AffinityCpus() {
  SKEIN_ASSIGN_OR_RETURN(const Affinity affinity, FindAffinity());
  hwloc_topology_t const topology = affinity.topology.get();
  const bool told = Next(topology, affinity.cpus.get(), HWLOC_OBJ_CORE, nullptr) != nullptr;
  const hwloc_obj_type_t type = told ? HWLOC_OBJ_CORE : HWLOC_OBJ_PU;
  std::vector<Cpus> cores;
  hwloc_obj_t core = nullptr;
  while ((core = Next(topology, affinity.cpus.get(), type, core)) != nullptr) {
    Cpus& cpus = cores.emplace_back();
    unsigned cpu = 0;
    hwloc_bitmap_foreach_begin(cpu, core->cpuset) {
      if (hwloc_bitmap_isset(affinity.cpus.get(), cpu) != 0) cpus.push_back(static_cast<int>(cpu));
    }
    hwloc_bitmap_foreach_end();
  }
  return cores;
}

std::vector<Cpus> CoresOfThreads(int32_t threads) {
  const absl::StatusOr<std::vector<Cpus>> cores = AffinityCpus();
  if (!cores.ok() || static_cast<int64_t>(cores->size()) != threads) return {};
  return *cores;
}

absl::StatusOr<int64_t> AffinityCacheBytes() {
  SKEIN_ASSIGN_OR_RETURN(const Affinity affinity, FindAffinity());
  return CacheBytesOf(affinity.topology.get(), affinity.cpus.get());
}

int64_t CacheBytesOf(hwloc_topology_t topology, hwloc_const_cpuset_t cpus) {
  constexpr uint64_t kMost = std::numeric_limits<int64_t>::max();
  uint64_t bytes = 0;
  hwloc_obj_t cache = nullptr;
  while ((cache = Next(topology, cpus, HWLOC_OBJ_L3CACHE, cache)) != nullptr) {
    if (cache->attr != nullptr) bytes += std::min(kMost - bytes, cache->attr->cache.size);
  }
  return static_cast<int64_t>(bytes);
}

int32_t CoresOf(hwloc_topology_t topology, hwloc_const_cpuset_t cpus) {
  int32_t cores = 0;
  hwloc_obj_t core = nullptr;
  while ((core = Next(topology, cpus, HWLOC_OBJ_CORE, core)) != nullptr) ++cores;
  return cores > 0 ? cores : hwloc_bitmap_weight(cpus);
}

}  // namespace skein::topology
