// Where the ranks of jobs run. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "parallel/plan/plan.h"
#include "topology/machine.h"
#include "topology/topology.h"

namespace skein::coordinator {

// Where a rank with a part in the plan runs: on a host of TopologyOf(machine), which has GPUs in
// the order of its ranks.
struct RankPlace {
  int32_t rank = 0;
  int32_t replica = 0;
  int32_t host = 0;
  int32_t gpu = -1;  // -1: on its cores

  friend bool operator==(const RankPlace&, const RankPlace&) = default;
};

// By rank.
std::vector<RankPlace> PlacesOfRanks(const topology::Machine& machine, const plan::Plan& plan);

struct LiveRank {
  std::string job_id;
  RankPlace place;  // on a host of LiveHosts::topology
};

// The hosts of several jobs as one cluster, and the ranks that run there.
struct LiveHosts {
  topology::Topology topology;
  std::vector<LiveRank> ranks;  // job after job
};

}  // namespace skein::coordinator
