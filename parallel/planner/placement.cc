#include "parallel/planner/placement.h"

#include <algorithm>
#include <map>
#include <utility>

namespace skein::plan {

using cost::Site;
using topology::Topology;

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
