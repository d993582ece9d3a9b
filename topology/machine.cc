#include "topology/machine.h"

#include <algorithm>

#include "absl/container/flat_hash_map.h"

namespace skein::topology {

Machine MachineFromRanks(const std::vector<RankReport>& reports) {
  Machine machine;
  absl::flat_hash_map<std::string, int32_t> node_of_host;
  for (const RankReport& report : reports) {
    const int32_t next = static_cast<int32_t>(machine.nodes.size());
    const auto [entry, is_new] = node_of_host.try_emplace(report.node.host, next);
    if (is_new) machine.nodes.push_back(report.node);
    Node& node = machine.nodes[entry->second];
    node.cores = std::max(node.cores, report.node.cores);
    node.memory_bytes = std::min(node.memory_bytes, report.node.memory_bytes);
    Device& device = machine.devices.emplace_back(report.device);
    device.node = entry->second;
  }
  return machine;
}

}  // namespace skein::topology
