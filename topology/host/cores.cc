#include "topology/host/cores.h"

#include <errno.h>

#include <memory>

#include "base/status_util.h"

namespace skein::topology {
namespace {

template <typename T, void (*kFree)(T*)>
struct Freer {
  void operator()(T* object) const { kFree(object); }
};
using Topology = std::unique_ptr<hwloc_topology, Freer<hwloc_topology, hwloc_topology_destroy>>;
using Bitmap = std::unique_ptr<hwloc_bitmap_s, Freer<hwloc_bitmap_s, hwloc_bitmap_free>>;

}  // namespace

absl::StatusOr<int32_t> AffinityCores() {
  hwloc_topology_t raw = nullptr;
  if (hwloc_topology_init(&raw) != 0) return ErrnoStatus(errno, "hwloc_topology_init");
  const Topology topology(raw);
  if (hwloc_topology_load(raw) != 0) return ErrnoStatus(errno, "hwloc_topology_load");
  const Bitmap cpus(hwloc_bitmap_alloc());
  if (hwloc_get_cpubind(raw, cpus.get(), HWLOC_CPUBIND_THREAD) != 0) {
    return ErrnoStatus(errno, "hwloc_get_cpubind");
  }
  return CoresOf(raw, cpus.get());
}

int32_t CoresOf(hwloc_topology_t topology, hwloc_const_cpuset_t cpus) {
  int32_t cores = 0;
  hwloc_obj_t core = nullptr;
  while ((core = hwloc_get_next_obj_covering_cpuset_by_type(topology, cpus, HWLOC_OBJ_CORE,
                                                            core)) != nullptr) {
    ++cores;
  }
  return cores > 0 ? cores : hwloc_bitmap_weight(cpus);
}

}  // namespace skein::topology
