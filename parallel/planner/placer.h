// Chooses which sites are the shards of a stage, and which stages a replica. Not thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "parallel/planner/host_kinds.h"
#include "parallel/planner/placement.h"
#include "topology/topology.h"

namespace skein::plan {

class Placer {
 public:
  // `topology` outlives it.
  explicit Placer(const topology::Topology& topology) : topology_(topology), kinds_(topology) {}

  // Groups of `size` of the hosts' sites, of which each lies on one host while hosts have so many;
  // sites that are left over are in none. Of a host's up to kMostParted GPUs the parting whose
  // groups sum the fastest, alike cards first; of more, a group begins at the first that is free
  // and grows by that whose slowest connection into the group is the best. In the order of hosts.
  // Groups of more sites than any host has go over hosts.
  std::vector<Group> TensorGroups(std::vector<std::vector<cost::Site>> sites_of_hosts,
                                  int32_t size);

  // Replicas of `pp_size` groups. A replica stays on one host while that has so many; what hosts
  // have left makes further replicas, from host to host. Of up to kMostParted groups of GPUs the
  // parting, and of a replica's stages the order, whose messages take the least time.
  std::vector<std::vector<Group>> Replicas(const std::vector<Group>& groups, int32_t pp_size);

 private:
  using Partings = std::vector<std::vector<int>>;

  const Partings& GroupsOfHost(const std::vector<cost::Site>& sites, int32_t size);
  const Partings& ReplicasOfHost(const std::vector<Group>& groups, int32_t pp_size);
  // Seconds, of the slowest shard.
  double Hop(const Group& from, const Group& to) const;

  const topology::Topology& topology_;
  const HostKinds kinds_;
  std::map<std::string, Partings> parted_;  // of alike hosts, once
};

}  // namespace skein::plan
