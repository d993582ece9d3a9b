// Which ranks of a job a layout takes: those that are near each other. Pure.
#pragma once

#include <cstdint>
#include <vector>

#include "parallel/cost/device_cost.h"
#include "parallel/planner/placer.h"
#include "topology/machine.h"

namespace skein::plan {

// A replica's ranks: stage after stage, shards fastest.
using ReplicaRanks = std::vector<int32_t>;

// As many replicas as the job's ranks make, in the order of hosts, and with the shards of a stage
// on one host where hosts have so many. placer: of TopologyOf(machine).
std::vector<ReplicaRanks> PlaceJob(const topology::Machine& machine, Placer& placer,
                                   int32_t tp_size, int32_t pp_size);

// The ranks of `dp_size` of the replicas, of which there are so many, one replica after the other.
// Where ranks share cores and not all replicas are taken, hosts take turns.
std::vector<int32_t> RanksOfReplicas(const topology::Machine& machine,
                                     const std::vector<ReplicaRanks>& replicas, int32_t dp_size);

// Where each rank is in TopologyOf(machine).
std::vector<cost::Site> SitesOfRanks(const topology::Machine& machine);

// The number of `ranks` on each node.
std::vector<int32_t> RanksOfNodes(const topology::Machine& machine,
                                  const std::vector<int32_t>& ranks);

}  // namespace skein::plan
