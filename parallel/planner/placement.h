// Where ranks can go on machines. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "parallel/cost/device_cost.h"
#include "topology/topology.h"

namespace skein::plan {

// The sites of a host, in the order of ranks: its GPUs, or `core_ranks` ranks on its cores.
std::vector<cost::Site> SitesOf(const topology::Topology& topology, int32_t host,
                                int32_t core_ranks);

// The same of every host.
std::vector<std::vector<cost::Site>> SitesOfHosts(const topology::Topology& topology,
                                                  int32_t core_ranks);

// The shards of a stage.
using Group = std::vector<cost::Site>;

// Whether NVLink, or a host's memory for ranks on cores, connects each two.
bool IsIsland(const topology::Topology& topology, const Group& group);

// The order of replicas, of which [i] begins on hosts[i], in which hosts take turns: where not all
// are used, and ranks of a host share its cores, each has more.
std::vector<size_t> TakingTurns(const std::vector<int32_t>& hosts);

}  // namespace skein::plan
