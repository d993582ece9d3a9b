// Where ranks go on machines: shards next to each other, stages along the shortest ways. Pure.
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

// Groups of `size` of the hosts' sites, of which each lies on one host while hosts have so many;
// sites that are left over are in none. A group begins at the first site that is free and grows by
// that whose slowest connection into the group is the best: equal cards first, NVLink before PCIe,
// more NVLinks before fewer. In the order of hosts. Groups of more sites than any host has go over
// hosts.
using Group = std::vector<cost::Site>;
std::vector<Group> TensorGroups(const topology::Topology& topology,
                                std::vector<std::vector<cost::Site>> sites_of_hosts, int32_t size);

// Whether NVLink, or a host's memory for ranks on cores, connects each two.
bool IsIsland(const topology::Topology& topology, const Group& group);

// Replicas of `pp_size` groups. A replica stays on one host while that has so many; what hosts have
// left makes further replicas, from host to host.
std::vector<std::vector<Group>> PlaceReplicas(const std::vector<Group>& groups, int32_t pp_size);

// The order of replicas, of which [i] begins on hosts[i], in which hosts take turns: where not all
// are used, and ranks of a host share its cores, each has more.
std::vector<size_t> TakingTurns(const std::vector<int32_t>& hosts);

}  // namespace skein::plan
