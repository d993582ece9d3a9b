#include "topology/host/processors.h"

#include <algorithm>
#include <cstdint>
#include <limits>

#include "topology/host/cores.h"

namespace skein::topology {
namespace {

constexpr unsigned kMostNumaNodes = 1024;  // of Linux

int64_t Bytes(uint64_t bytes) {
  return static_cast<int64_t>(std::min<uint64_t>(bytes, std::numeric_limits<int64_t>::max()));
}

Cpus CpusOf(hwloc_const_cpuset_t set) {
  Cpus cpus;
  if (set == nullptr || hwloc_bitmap_weight(set) < 0) return cpus;  // infinite
  for (int cpu = hwloc_bitmap_first(set); cpu >= 0; cpu = hwloc_bitmap_next(set, cpu)) {
    cpus.push_back(cpu);
  }
  return cpus;
}

// Of the first core: its part where several share one.
int64_t L2OfACore(hwloc_topology_t topology) {
  const hwloc_obj_t cache = hwloc_get_obj_by_type(topology, HWLOC_OBJ_L2CACHE, 0);
  if (cache == nullptr || cache->attr == nullptr) return 0;
  return Bytes(cache->attr->cache.size) / std::max(1, CoresOf(topology, cache->cpuset));
}

}  // namespace

void DescribeProcessors(hwloc_topology_t topology, Host& host) {
  host.sockets = std::max(0, hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_PACKAGE));
  host.l2_bytes = L2OfACore(topology);
  host.l3_bytes = CacheBytesOf(topology, hwloc_topology_get_topology_cpuset(topology));
  hwloc_obj_t object = nullptr;
  host.numa_nodes.clear();
  while ((object = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_NUMANODE, object)) != nullptr) {
    if (object->os_index >= kMostNumaNodes) continue;
    if (host.numa_nodes.size() <= object->os_index) host.numa_nodes.resize(object->os_index + 1);
    host.numa_nodes[object->os_index] = {
        .cpus = CpusOf(object->cpuset),
        .memory_bytes = object->attr == nullptr ? 0 : Bytes(object->attr->numanode.local_memory)};
  }
}

}  // namespace skein::topology
