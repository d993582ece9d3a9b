#include "topology/interconnect.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "topology/pci_address.h"

namespace skein::topology {

std::string_view PathName(Path path) {
  switch (path) {
    case Path::kSelf:
      return "X";
    case Path::kNvlink:
      return "NV";
    case Path::kSwitch:
      return "PIX";
    case Path::kSwitches:
      return "PXB";
    case Path::kBridge:
      return "PHB";
    case Path::kNode:
      return "NODE";
    case Path::kSystem:
      return "SYS";
  }
  return "";
}

std::string_view NicKindName(NicKind kind) {
  switch (kind) {
    case NicKind::kUnknown:
      return "";
    case NicKind::kEthernet:
      return "ethernet";
    case NicKind::kInfiniBand:
      return "infiniband";
  }
  return "";
}

std::string ToString(const Connection& connection) {
  const std::string name(PathName(connection.path));
  return connection.path == Path::kNvlink ? absl::StrCat(name, connection.nvlinks) : name;
}

std::vector<std::vector<int>> Islands(const Interconnect& of, Path longest) {
  std::vector<std::vector<int>> islands;
  for (int gpu = 0; gpu < static_cast<int>(of.gpus.size()); ++gpu) {
    const auto fits = [&](const std::vector<int>& island) {
      return std::all_of(island.begin(), island.end(),
                         [&](int other) { return of.OfGpus(gpu, other).path <= longest; });
    };
    const auto island = std::find_if(islands.begin(), islands.end(), fits);
    if (island == islands.end()) {
      islands.push_back({gpu});
    } else {
      island->push_back(gpu);
    }
  }
  return islands;
}

const LinkRate* SlowLink(const Interconnect& of, int a, int b) {
  for (const SlowPair& pair : of.slow_pairs) {
    if (pair.first == std::min(a, b) && pair.second == std::max(a, b)) return &pair.link;
  }
  return nullptr;
}

void TakeSlowPairs(const Interconnect& from, Interconnect& of) {
  const auto place_of = [&](int32_t gpu) {
    const std::string address = PciAddress(from.gpus[gpu].bus_id);
    const auto found = std::find_if(of.gpus.begin(), of.gpus.end(), [&](const Gpu& other) {
      return !address.empty() && PciAddress(other.bus_id) == address;
    });
    return static_cast<int32_t>(found - of.gpus.begin());
  };
  const auto gpus = static_cast<int32_t>(of.gpus.size());
  for (const SlowPair& pair : from.slow_pairs) {
    const auto [first, second] = std::minmax({place_of(pair.first), place_of(pair.second)});
    if (second == gpus || SlowLink(of, first, second) != nullptr) continue;
    of.slow_pairs.push_back({first, second, pair.link});
  }
  std::sort(of.slow_pairs.begin(), of.slow_pairs.end(), [](const auto& a, const auto& b) {
    return std::pair(a.first, a.second) < std::pair(b.first, b.second);
  });
}

std::vector<int> NearestNics(const Interconnect& of, int gpu) {
  std::vector<int> nearest;
  for (int nic = 0; nic < static_cast<int>(of.nics.size()); ++nic) {
    const Path path = of.OfGpuAndNic(gpu, nic).path;
    const bool nearer = nearest.empty() || path < of.OfGpuAndNic(gpu, nearest.front()).path;
    if (nearer) nearest.clear();
    if (nearer || path == of.OfGpuAndNic(gpu, nearest.front()).path) nearest.push_back(nic);
  }
  return nearest;
}

}  // namespace skein::topology
