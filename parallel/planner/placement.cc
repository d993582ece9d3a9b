#include "parallel/planner/placement.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

namespace skein::plan {
namespace {

using cost::Site;
using topology::Topology;

// Less is better.
using Distance = std::tuple<bool, topology::Path, int32_t>;

Distance DistanceOf(const Topology& topology, const Site& a, const Site& b) {
  if (a.gpu < 0) return {};
  const topology::Interconnect& of = topology.hosts[a.host].interconnect;
  const topology::Connection& connection = of.OfGpus(a.gpu, b.gpu);
  return {of.gpus[a.gpu].model != of.gpus[b.gpu].model, connection.path, -connection.nvlinks};
}

// Takes a group out of `free`, which has `size` sites at least.
Group TakeGroup(const Topology& topology, std::vector<Site>& free, int32_t size) {
  if (free.front().gpu < 0) {  // cores of a host are all alike
    Group cores(free.begin(), free.begin() + size);
    free.erase(free.begin(), free.begin() + size);
    return cores;
  }
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

}  // namespace

std::vector<Site> SitesOf(const Topology& topology, int32_t host, int32_t core_ranks) {
  const auto gpus = static_cast<int32_t>(topology.hosts[host].interconnect.gpus.size());
  std::vector<Site> sites;
  for (int32_t gpu = 0; gpu < gpus; ++gpu) sites.push_back({host, gpu});
  if (gpus == 0) sites.assign(core_ranks, {host, -1});
  return sites;
}

std::vector<std::vector<Site>> SitesOfHosts(const Topology& topology, int32_t core_ranks) {
  std::vector<std::vector<Site>> sites;
  for (size_t host = 0; host < topology.hosts.size(); ++host) {
    sites.push_back(SitesOf(topology, static_cast<int32_t>(host), core_ranks));
  }
  return sites;
}

std::vector<Group> TensorGroups(const Topology& topology,
                                std::vector<std::vector<Site>> sites_of_hosts, int32_t size) {
  std::vector<Group> groups;
  std::vector<Site> left;
  bool some_host_has = false;
  for (std::vector<Site>& free : sites_of_hosts) {
    while (static_cast<int32_t>(free.size()) >= size) {
      groups.push_back(TakeGroup(topology, free, size));
      some_host_has = true;
    }
    left.insert(left.end(), free.begin(), free.end());
  }
  if (!some_host_has) TakeRuns(left, size, groups);
  return groups;
}

bool IsIsland(const Topology& topology, const Group& group) {
  const auto near = [&](const Site& a, const Site& b) {
    if (a.host != b.host) return false;
    if (a.gpu < 0 || a == b) return true;
    const topology::Interconnect& of = topology.hosts[a.host].interconnect;
    return of.OfGpus(a.gpu, b.gpu).path <= topology::Path::kNvlink;
  };
  return std::all_of(group.begin(), group.end(), [&](const Site& a) {
    return std::all_of(group.begin(), group.end(), [&](const Site& b) { return near(a, b); });
  });
}

std::vector<std::vector<Group>> PlaceReplicas(const std::vector<Group>& groups, int32_t pp_size) {
  std::map<int32_t, std::vector<Group>> by_host;
  for (const Group& group : groups) by_host[group.front().host].push_back(group);
  std::vector<std::vector<Group>> replicas;
  std::vector<Group> left;
  for (auto& [host, of_host] : by_host) {
    TakeRuns(of_host, static_cast<size_t>(pp_size), replicas);
    left.insert(left.end(), of_host.begin(), of_host.end());
  }
  TakeRuns(left, static_cast<size_t>(pp_size), replicas);
  return replicas;
}

std::vector<size_t> TakingTurns(const std::vector<int32_t>& hosts) {
  std::map<int32_t, int32_t> of_host;
  std::vector<std::pair<int32_t, size_t>> turns;
  for (size_t i = 0; i < hosts.size(); ++i) turns.emplace_back(of_host[hosts[i]]++, i);
  std::sort(turns.begin(), turns.end());
  std::vector<size_t> order;
  for (const auto& [turn, i] : turns) order.push_back(i);
  return order;
}

}  // namespace skein::plan
