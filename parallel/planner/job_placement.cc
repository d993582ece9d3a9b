#include "parallel/planner/job_placement.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "base/device_kind.h"
#include "parallel/planner/placement.h"

namespace skein::plan {
namespace {

bool SharesCores(const topology::Machine& machine) {
  return machine.devices.front().kind == DeviceKind::kCpu;
}

// The ranks of each node, in their order.
std::vector<ReplicaRanks> ByNode(const topology::Machine& machine) {
  std::vector<ReplicaRanks> ranks(machine.nodes.size());
  for (size_t rank = 0; rank < machine.devices.size(); ++rank) {
    ranks[machine.devices[rank].node].push_back(static_cast<int32_t>(rank));
  }
  return ranks;
}

}  // namespace

std::vector<ReplicaRanks> PlaceJob(const topology::Machine& machine, Placer& placer,
                                   int32_t tp_size, int32_t pp_size) {
  std::vector<std::vector<int32_t>> ranks = ByNode(machine);
  const bool cores = SharesCores(machine);
  std::vector<std::vector<cost::Site>> sites(ranks.size());
  for (size_t node = 0; node < ranks.size(); ++node) {
    for (size_t i = 0; i < ranks[node].size(); ++i) {
      sites[node].push_back({static_cast<int32_t>(node), cores ? -1 : static_cast<int32_t>(i)});
    }
  }
  std::vector<size_t> taken(ranks.size(), 0);  // of a node's cores
  std::vector<ReplicaRanks> replicas;
  for (const auto& stages :
       placer.Replicas(placer.TensorGroups(std::move(sites), tp_size), pp_size)) {
    ReplicaRanks& replica = replicas.emplace_back();
    for (const Group& stage : stages) {
      for (const cost::Site& site : stage) {
        replica.push_back(ranks[site.host][cores ? taken[site.host]++ : site.gpu]);
      }
    }
  }
  return replicas;
}

std::vector<int32_t> RanksOfReplicas(const topology::Machine& machine,
                                     const std::vector<ReplicaRanks>& replicas, int32_t dp_size) {
  const bool spread = SharesCores(machine) && dp_size < static_cast<int32_t>(replicas.size());
  std::vector<int32_t> hosts;  // one is enough where they take no turns
  for (const ReplicaRanks& replica : replicas) {
    hosts.push_back(spread ? machine.devices[replica.front()].node : 0);
  }
  const std::vector<size_t> order = TakingTurns(hosts);
  std::vector<int32_t> ranks;
  for (int32_t i = 0; i < dp_size; ++i) {
    const ReplicaRanks& replica = replicas[order[i]];
    ranks.insert(ranks.end(), replica.begin(), replica.end());
  }
  return ranks;
}

std::vector<cost::Site> SitesOfRanks(const topology::Machine& machine) {
  const bool cores = SharesCores(machine);
  std::vector<int32_t> taken(machine.nodes.size(), 0);  // of a node's GPUs
  std::vector<cost::Site> sites;
  for (const topology::Device& device : machine.devices) {
    sites.push_back({device.node, cores ? -1 : taken[device.node]++});
  }
  return sites;
}

std::vector<int32_t> RanksOfNodes(const topology::Machine& machine,
                                  const std::vector<int32_t>& ranks) {
  std::vector<int32_t> counts(machine.nodes.size(), 0);
  for (const int32_t rank : ranks) ++counts[machine.devices[rank].node];
  return counts;
}

}  // namespace skein::plan
