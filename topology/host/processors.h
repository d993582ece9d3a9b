// The processors and memories of a node, by hwloc.
#pragma once

#include <hwloc.h>

#include "topology/topology.h"

namespace skein::topology {

// Fills in sockets, l2_bytes, l3_bytes and numa_nodes, by the system's numbers: where one is
// missing, the entry is empty. What the system does not tell is 0.
void DescribeProcessors(hwloc_topology_t topology, Host& host);

}  // namespace skein::topology
