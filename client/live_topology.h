// Machines of a running cluster.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "client/endpoint.h"
#include "topology/draw/rank_label.h"
#include "topology/topology.h"

namespace skein::client {

struct LiveTopology {
  topology::Topology topology;
  std::vector<topology::RankLabel> ranks;  // of its jobs, a group a replica
};

// The hosts of the jobs at this coordinator, as they were before they loaded. Errors are for
// people: nobody listens, no job is there.
absl::StatusOr<LiveTopology> FetchTopology(const Endpoint& coordinator);

}  // namespace skein::client
