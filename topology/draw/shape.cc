#include "topology/draw/shape.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <utility>

namespace skein::topology::draw {
namespace {

constexpr size_t kMostHostsInFull = 8;
constexpr size_t kMostHosts = 32;  // more cards than that are no picture

// Sets of the first `size` numbers, by their least members, where `joined` pairs are in one.
template <typename Joined>
std::vector<std::vector<int>> SetsOf(int size, const Joined& joined) {
  std::vector<int> set(size);
  std::iota(set.begin(), set.end(), 0);
  for (int i = 0; i < size; ++i) {
    for (int j = 0; j < i; ++j) {
      if (set[i] == set[j] || !joined(i, j)) continue;
      const int kept = std::min(set[i], set[j]), lost = std::max(set[i], set[j]);
      std::replace(set.begin(), set.end(), lost, kept);
    }
  }
  std::map<int, std::vector<int>> by_least;
  for (int i = 0; i < size; ++i) by_least[set[i]].push_back(i);
  std::vector<std::vector<int>> sets;
  for (auto& [least, members] : by_least) sets.push_back(std::move(members));
  return sets;
}

bool OverSwitches(const Connection& connection) {
  return connection.path == Path::kSwitch || connection.path == Path::kSwitches;
}

std::vector<PcieGroup> GroupsOf(const Interconnect& of) {
  const int gpus = static_cast<int>(of.gpus.size());
  const int devices = static_cast<int>(of.connections.size());
  std::vector<PcieGroup> groups;
  for (const std::vector<int>&set :
       SetsOf(devices, [&](int i, int j) { return OverSwitches(of.connections[i][j]); })) {
    PcieGroup& group = groups.emplace_back();
    for (const int device : set) {
      if (device < gpus) {
        group.gpus.push_back(device);
      } else {
        group.nics.push_back(device - gpus);
      }
      for (const int other : set) {
        const Connection& connection = of.connections[device][other];
        if (OverSwitches(connection)) group.longest = std::max(group.longest, connection.path);
      }
    }
  }
  std::stable_partition(groups.begin(), groups.end(),
                        [](const PcieGroup& group) { return !group.gpus.empty(); });
  return groups;
}

// The NUMA node of a group; -1: not told.
int32_t NodeOf(const Interconnect& of, const PcieGroup& group) {
  for (const int gpu : group.gpus) {
    if (of.gpus[gpu].numa_node >= 0) return of.gpus[gpu].numa_node;
  }
  Path nearest = Path::kSystem;
  int32_t node = -1;
  for (const int nic : group.nics) {
    for (int gpu = 0; gpu < static_cast<int>(of.gpus.size()); ++gpu) {
      const Path path = of.OfGpuAndNic(gpu, nic).path;
      if (path >= nearest || of.gpus[gpu].numa_node < 0) continue;
      nearest = path;
      node = of.gpus[gpu].numa_node;
    }
  }
  return node;
}

// All that makes a card of a host, without what was measured.
bool AlikeGpus(const Interconnect& a, const Interconnect& b) {
  const auto gpu = [](const Gpu& one, const Gpu& other) {
    return one.name == other.name && one.model == other.model && one.numa_node == other.numa_node;
  };
  const auto nic = [](const Nic& one, const Nic& other) {
    return one.name == other.name && one.kind == other.kind && one.bytes_per_s == other.bytes_per_s;
  };
  return std::equal(a.gpus.begin(), a.gpus.end(), b.gpus.begin(), b.gpus.end(), gpu) &&
         std::equal(a.nics.begin(), a.nics.end(), b.nics.begin(), b.nics.end(), nic) &&
         a.connections == b.connections && a.nvswitches == b.nvswitches;
}

}  // namespace

std::vector<Place> PlacesOf(const Host& host) {
  std::map<int32_t, std::vector<PcieGroup>> groups;
  const auto nodes = static_cast<int32_t>(host.numa_nodes.size());
  for (int32_t node = 0; node < nodes; ++node) groups[node];
  for (PcieGroup& group : GroupsOf(host.interconnect)) {
    int32_t node = NodeOf(host.interconnect, group);
    if (node < 0 && nodes == 1) node = 0;  // there is no other
    groups[node].push_back(std::move(group));
  }
  std::vector<Place> places;
  for (auto& [node, of_node] : groups) places.push_back({node, std::move(of_node)});
  if (!places.empty() && places.front().numa_node < 0) {
    std::rotate(places.begin(), places.begin() + 1, places.end());
  }
  return places;
}

std::vector<NvlinkMesh> NvlinkMeshesOf(const Interconnect& of) {
  std::vector<NvlinkMesh> meshes;
  const auto joined = [&](int i, int j) { return of.OfGpus(i, j).path == Path::kNvlink; };
  for (std::vector<int>& set : SetsOf(static_cast<int>(of.gpus.size()), joined)) {
    if (set.size() < 2) continue;
    std::set<int32_t> counts;
    for (const int i : set) {
      for (const int j : set) {
        if (i != j) counts.insert(of.OfGpus(i, j).nvlinks);  // 0 of other paths
      }
    }
    meshes.push_back({std::move(set), counts.size() == 1 ? *counts.begin() : 0});
  }
  return meshes;
}

bool Alike(const Host& a, const Host& b) {
  return a.cpu == b.cpu && a.sockets == b.sockets && a.cores == b.cores &&
         a.numa_nodes.size() == b.numa_nodes.size() && AlikeGpus(a.interconnect, b.interconnect) &&
         a.interconnect.slow_pairs == b.interconnect.slow_pairs;
}

std::vector<ShownHost> HostsToShow(const Topology& topology) {
  const int hosts = static_cast<int>(topology.hosts.size());
  std::vector<ShownHost> shown;
  if (topology.hosts.size() <= kMostHostsInFull) {
    for (int host = 0; host < hosts; ++host) shown.push_back({.host = host});
    return shown;
  }
  std::vector<std::vector<int>> kinds;
  for (int host = 0; host < hosts; ++host) {
    const auto kind = std::find_if(kinds.begin(), kinds.end(), [&](const std::vector<int>& of) {
      return Alike(topology.hosts[of.front()], topology.hosts[host]);
    });
    if (kind == kinds.end()) {
      kinds.push_back({host});
    } else {
      kind->push_back(host);
    }
  }
  std::vector<int> rest;
  size_t drawn = 0;
  for (const std::vector<int>& kind : kinds) {
    const size_t cards = std::min(kind.size(), size_t{3});
    if (drawn + cards > kMostHosts) {
      rest.insert(rest.end(), kind.begin(), kind.end());
      continue;
    }
    drawn += cards;
    for (size_t i = 0; i + 1 < cards; ++i) shown.push_back({.host = kind[i]});
    if (kind.size() > cards) {
      shown.push_back({.left_out = std::vector<int>(kind.begin() + 2, kind.end() - 1)});
    }
    shown.push_back({.host = kind.back()});
  }
  std::sort(rest.begin(), rest.end());
  if (!rest.empty()) shown.push_back({.left_out = std::move(rest), .left_out_alike = false});
  return shown;
}

}  // namespace skein::topology::draw
