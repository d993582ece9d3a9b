#include "parallel/planner/placer.h"

#include <algorithm>
#include <numeric>
#include <set>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "parallel/cost/exchange_cost.h"
#include "parallel/planner/partition.h"

namespace skein::plan {
namespace {

using cost::Site;
using topology::Topology;

// Of a message or a sum by which places are compared: some rows of a large model.
constexpr int64_t kCompared = int64_t{1} << 20;
// Less is better.
using Distance = std::tuple<bool, topology::Path, bool, int32_t>;

Distance DistanceOf(const Topology& topology, const Site& a, const Site& b) {
  const topology::Interconnect& of = topology.hosts[a.host].interconnect;
  const topology::Connection& connection = of.OfGpus(a.gpu, b.gpu);
  return {of.gpus[a.gpu].model != of.gpus[b.gpu].model, connection.path,
          topology::SlowLink(of, a.gpu, b.gpu) != nullptr, -connection.nvlinks};
}

// Takes a group of GPUs out of `free`, which has `size` at least.
Group TakeGroup(const Topology& topology, std::vector<Site>& free, int32_t size) {
  Group group = {free.front()};
  free.erase(free.begin());
  while (static_cast<int32_t>(group.size()) < size) {
    const auto farthest = [&](const Site& site) {
      Distance worst{};
      for (const Site& member : group) {
        worst = std::max(worst, DistanceOf(topology, member, site));
      }
      return worst;
    };
    const auto best = std::min_element(free.begin(), free.end(), [&](const Site& a, const Site& b) {
      return farthest(a) < farthest(b);
    });
    group.push_back(*best);
    free.erase(best);
  }
  std::sort(group.begin(), group.end(), [](const Site& a, const Site& b) { return a.gpu < b.gpu; });
  return group;
}

template <typename T>
void TakeRuns(std::vector<T>& from, size_t size, std::vector<std::vector<T>>& to) {
  size_t taken = 0;
  for (; taken + size <= from.size(); taken += size) {
    to.emplace_back(from.begin() + taken, from.begin() + taken + size);
  }
  from.erase(from.begin(), from.begin() + taken);
}

// Takes those that are in some part, as they are parted.
template <typename T>
void TakeParts(std::vector<T>& from, const std::vector<std::vector<int>>& parts,
               std::vector<std::vector<T>>& to) {
  std::set<int> taken;
  for (const std::vector<int>& part : parts) {
    std::vector<T>& of = to.emplace_back();
    for (const int at : part) of.push_back(from[at]);
    taken.insert(part.begin(), part.end());
  }
  std::vector<T> left;
  for (int at = 0; at < static_cast<int>(from.size()); ++at) {
    if (taken.count(at) == 0) left.push_back(std::move(from[at]));
  }
  from = std::move(left);
}

}  // namespace

const Placer::Partings& Placer::GroupsOfHost(const std::vector<Site>& sites, int32_t size) {
  const auto [found, anew] =
      parted_.try_emplace(absl::StrCat("groups ", size, " ", kinds_.KeyOf({{sites}})));
  if (!anew) return found->second;
  const topology::Interconnect& of = topology_.hosts[sites.front().host].interconnect;
  found->second = BestGroups(
      static_cast<int>(sites.size()), size, [&](const std::vector<int>& group) -> GroupCost {
        Group shards;
        std::set<std::string> models;
        for (const int at : group) {
          shards.push_back(sites[at]);
          models.insert(of.gpus[sites[at].gpu].model);
        }
        // Unlike cards share a group only where they must.
        return {static_cast<int>(models.size()) - 1,
                absl::ToDoubleSeconds(cost::AllReduceTime(topology_, shards, kCompared))};
      });
  return found->second;
}

std::vector<Group> Placer::TensorGroups(std::vector<std::vector<Site>> sites_of_hosts,
                                        int32_t size) {
  std::vector<Group> groups;
  std::vector<Site> left;
  for (std::vector<Site>& free : sites_of_hosts) {
    if (free.empty()) continue;
    if (free.front().gpu < 0 || size == 1) {  // cores of a host are all alike
      TakeRuns(free, static_cast<size_t>(size), groups);
    } else if (free.size() <= kMostParted) {
      TakeParts(free, GroupsOfHost(free, size), groups);
    }
    while (static_cast<int32_t>(free.size()) >= size) {
      groups.push_back(TakeGroup(topology_, free, size));
    }
    left.insert(left.end(), free.begin(), free.end());
  }
  if (groups.empty()) TakeRuns(left, static_cast<size_t>(size), groups);
  return groups;
}

double Placer::Hop(const Group& from, const Group& to) const {
  absl::Duration slowest;
  for (size_t shard = 0; shard < from.size(); ++shard) {
    slowest = std::max(slowest, cost::SendTime(topology_, from[shard], to[shard], kCompared));
  }
  return absl::ToDoubleSeconds(slowest);
}

const Placer::Partings& Placer::ReplicasOfHost(const std::vector<Group>& groups, int32_t pp_size) {
  const auto [found, anew] =
      parted_.try_emplace(absl::StrCat("stages ", pp_size, " ", kinds_.KeyOf(groups)));
  if (!anew) return found->second;
  const auto hop = [&](int from, int to) { return Hop(groups[from], groups[to]); };
  found->second = BestGroups(static_cast<int>(groups.size()), pp_size,
                             [&](const std::vector<int>& stages) -> GroupCost {
                               return {0, OrderCost(BestOrder(stages, hop), hop)};
                             });
  for (std::vector<int>& stages : found->second) stages = BestOrder(stages, hop);
  return found->second;
}

std::vector<std::vector<Group>> Placer::Replicas(const std::vector<Group>& groups,
                                                 int32_t pp_size) {
  const auto size = static_cast<size_t>(pp_size);
  std::map<int32_t, std::vector<Group>> by_host;
  for (const Group& group : groups) by_host[group.front().host].push_back(group);
  std::vector<std::vector<Group>> replicas;
  std::vector<Group> left;
  const auto searched = [&](const std::vector<Group>& of) {
    return pp_size > 1 && of.size() <= kMostParted && of.front().front().gpu >= 0;
  };
  for (auto& [host, of_host] : by_host) {
    if (searched(of_host) && of_host.size() >= size) {
      TakeParts(of_host, ReplicasOfHost(of_host, pp_size), replicas);
    }
    TakeRuns(of_host, size, replicas);
    left.insert(left.end(), of_host.begin(), of_host.end());
  }
  std::vector<std::vector<Group>> over_hosts;
  TakeRuns(left, size, over_hosts);
  for (std::vector<Group>& replica : over_hosts) {
    if (searched(replica)) TakeParts(replica, ReplicasOfHost(replica, pp_size), replicas);
    if (!replica.empty()) replicas.push_back(std::move(replica));
  }
  return replicas;
}

}  // namespace skein::plan
