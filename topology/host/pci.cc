#include "topology/host/pci.h"

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <system_error>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/file.h"
#include "topology/pci_address.h"

namespace skein::topology {
namespace {

// The real path of a file, in parts; none where there is no such file.
std::vector<std::string> PartsOf(const std::string& path) {
  std::error_code missing;
  const std::filesystem::path real = std::filesystem::canonical(path, missing);
  std::vector<std::string> parts;
  if (missing) return parts;
  for (const auto& part : real) parts.push_back(part.string());
  return parts;
}

bool IsAddress(const std::string& part) { return !part.empty() && PciAddress(part) == part; }

}  // namespace

std::string PciAddressOfFile(const std::string& path) {
  const std::vector<std::string> parts = PartsOf(path);
  const auto last = std::find_if(parts.rbegin(), parts.rend(), IsAddress);
  return last == parts.rend() ? "" : *last;
}

PciPlace PlaceOf(std::string_view address, const std::string& root) {
  PciPlace place;
  const std::string own = PciAddress(address);
  if (own.empty()) return place;
  const std::string device = absl::StrCat(root, "/sys/bus/pci/devices/", own);
  for (const std::string& part : PartsOf(device)) {
    // "pci0000:15". Behind a host bridge there can be another one, of another domain.
    const bool bridge = absl::StartsWith(part, "pci") && absl::StrContains(part, ':');
    if (bridge || (!place.chain.empty() && IsAddress(part))) place.chain.push_back(part);
  }
  if (!place.chain.empty() && place.chain.back() != own) place.chain.clear();
  if (!absl::SimpleAtoi(ReadFileOrEmpty(device + "/numa_node"), &place.numa_node) ||
      place.numa_node < 0) {
    place.numa_node = -1;
  }
  return place;
}

Path PathBetween(const PciPlace& a, const PciPlace& b) {
  const size_t most = std::min(a.chain.size(), b.chain.size());
  size_t common = 0;
  while (common < most && a.chain[common] == b.chain[common]) ++common;
  if (common == 0) {
    return a.numa_node >= 0 && a.numa_node == b.numa_node ? Path::kNode : Path::kSystem;
  }
  if (common == 1) return Path::kBridge;
  // Below the last bridge that both have, a switch's is one more on each side. Functions of one
  // device have none.
  const size_t below = std::max(a.chain.size(), b.chain.size()) - common;
  return below <= 2 ? Path::kSwitch : Path::kSwitches;
}

}  // namespace skein::topology
