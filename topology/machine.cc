#include "topology/machine.h"

#include <algorithm>

#include "absl/container/flat_hash_map.h"

namespace skein::topology {

Machine MachineFromRanks(const std::vector<Node>& reports) {
  Machine machine;
  absl::flat_hash_map<std::string, int32_t> node_of_host;
  for (const Node& report : reports) {
    const int32_t next = static_cast<int32_t>(machine.nodes.size());
    const auto [entry, is_new] = node_of_host.try_emplace(report.host, next);
    if (is_new) machine.nodes.push_back(report);
    Node& node = machine.nodes[entry->second];
    node.cores = std::max(node.cores, report.cores);
    node.memory_bytes = std::min(node.memory_bytes, report.memory_bytes);
    machine.devices.push_back({Device::Kind::kCpu, entry->second});
  }
  return machine;
}

}  // namespace skein::topology
