#include "topology/doctor/networks.h"

#include <arpa/inet.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace skein::topology {
namespace {

// The bits of an address that its network has, in the order of the net.
std::optional<uint32_t> NetworkBits(const std::string& address, int32_t prefix) {
  in_addr parsed{};
  if (inet_pton(AF_INET, address.c_str(), &parsed) != 1) return std::nullopt;
  const uint32_t mask = prefix <= 0 ? 0 : ~uint32_t{0} << (32 - std::min(prefix, 32));
  return parsed.s_addr & htonl(mask);
}

}  // namespace

std::string NetworkOf(const InterfaceFacts& interface) {
  const std::optional<uint32_t> bits = NetworkBits(interface.address, interface.prefix);
  if (!bits) return "";
  const in_addr network = {.s_addr = *bits};
  char text[INET_ADDRSTRLEN] = {};
  inet_ntop(AF_INET, &network, text, sizeof(text));
  return absl::StrCat(text, "/", interface.prefix);
}

bool IsNamed(std::string_view list, bool by_prefix, const InterfaceFacts& interface) {
  if (by_prefix && list.starts_with("=")) {
    list.remove_prefix(1);
    by_prefix = false;
  }
  for (const auto entry : absl::StrSplit(absl::string_view(list.data(), list.size()), ',')) {
    const std::vector<std::string> network = absl::StrSplit(entry, '/');
    int32_t prefix = 0;
    if (network.size() == 2 && absl::SimpleAtoi(network[1], &prefix)) {
      const std::optional<uint32_t> bits = NetworkBits(network[0], prefix);
      if (bits && bits == NetworkBits(interface.address, prefix)) return true;
      continue;
    }
    const std::string name(entry);
    if (name.empty()) continue;
    if (interface.name == name || (by_prefix && interface.name.starts_with(name))) return true;
  }
  return false;
}

std::vector<InterfaceFacts> UsedInterfaces(const RankFacts& host, const std::string& setting,
                                           bool by_prefix, const std::string& exclude) {
  const auto named = host.settings.find(setting);
  const auto left_out = host.settings.find(exclude);
  std::vector<InterfaceFacts> used;
  for (const InterfaceFacts& interface : host.interfaces) {
    const bool is_left_out = left_out != host.settings.end() &&
                             IsNamed(left_out->second, /*by_prefix=*/false, interface);
    if (named == host.settings.end() ? interface.up && !interface.loopback && !is_left_out
                                     : IsNamed(named->second, by_prefix, interface)) {
      used.push_back(interface);
    }
  }
  return used;
}

}  // namespace skein::topology
