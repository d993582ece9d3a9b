#include "topology/formats/pci.h"

#include <algorithm>
#include <cstddef>

#include "absl/strings/ascii.h"
#include "absl/strings/string_view.h"

namespace skein::topology {

std::optional<std::string> ParsePciAddress(std::string_view text) {
  const std::string address = absl::AsciiStrToLower(absl::string_view(text.data(), text.size()));
  const size_t domain = address.find(':');  // 4 digits, and more where domains are virtual
  if (domain == std::string::npos || domain < 4 || domain > 8) return std::nullopt;
  const absl::string_view kBehind = ":xx:xx.x";
  if (address.size() != domain + kBehind.size()) return std::nullopt;
  for (size_t i = 0; i < address.size(); ++i) {
    const char expected = i < domain ? 'x' : kBehind[i - domain];
    if (expected == 'x' ? !absl::ascii_isxdigit(address[i]) : address[i] != expected) {
      return std::nullopt;
    }
  }
  return address;
}

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
