#include "topology/formats/pci.h"

#include <algorithm>
#include <cstddef>

namespace skein::topology {

NicKind NicKindOfClass(uint32_t pci_class) {
  switch (pci_class >> 8) {
    case 0x0207:
      return NicKind::kInfiniBand;
    case 0x0200:
      return NicKind::kEthernet;
    default:
      return NicKind::kUnknown;
  }
}

Path PathBetween(const TreePlace& a, const TreePlace& b) {
  if (a.host_bridge < 0 || a.host_bridge != b.host_bridge) {
    return a.numa_node >= 0 && a.numa_node == b.numa_node ? Path::kNode : Path::kSystem;
  }
  const auto [in_a, in_b] =
      std::mismatch(a.switches.begin(), a.switches.end(), b.switches.begin(), b.switches.end());
  if (in_a == a.switches.begin()) return Path::kBridge;
  const bool others = in_a != a.switches.end() || in_b != b.switches.end();
  return others ? Path::kSwitches : Path::kSwitch;
}

std::vector<std::vector<Connection>> ConnectionsBetween(const std::vector<TreePlace>& places) {
  std::vector<std::vector<Connection>> connections(places.size());
  for (size_t i = 0; i < places.size(); ++i) {
    for (size_t j = 0; j < places.size(); ++j) {
      connections[i].push_back({i == j ? Path::kSelf : PathBetween(places[i], places[j])});
    }
  }
  return connections;
}

}  // namespace skein::topology
