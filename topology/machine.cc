#include "topology/machine.h"

#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/units.h"
#include "topology/presets/presets.h"

namespace skein::topology {
namespace {

// GPUs of which nobody has said how they are connected.
Interconnect Unknown(std::vector<Gpu> gpus) {
  Interconnect of;
  const size_t count = gpus.size();
  for (size_t i = 0; i < count; ++i) {
    of.connections.emplace_back(count, Connection{Path::kBridge})[i] = {};
  }
  of.gpus = std::move(gpus);
  return of;
}

void AddTold(const std::vector<RankReport>& reports, Machine& machine) {
  for (size_t rank = 0; rank < reports.size(); ++rank) {
    const std::optional<Topology>& told = reports[rank].told;
    if (!told.has_value() || told->hosts.size() != 1) continue;
    Topology& topology = machine.topology;
    topology.hosts.resize(machine.nodes.size());
    topology.hosts[machine.devices[rank].node] = told->hosts.front();
    // Hosts measure what connects them together; the slower figure counts.
    const LinkRate& link = told->fabric.link;
    const bool slower =
        topology.fabric.link.bytes_per_s == 0 ||
        (link.bytes_per_s > 0 && link.bytes_per_s < topology.fabric.link.bytes_per_s);
    if (slower) topology.fabric = told->fabric;
  }
}

}  // namespace

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
  AddTold(reports, machine);
  return machine;
}

absl::StatusOr<Machine> MachineOf(const Topology& topology, int32_t ranks) {
  Machine machine{.topology = topology};
  const auto hosts = static_cast<int32_t>(topology.hosts.size());
  int32_t gpus = 0;
  for (const Host& host : topology.hosts) {
    gpus += static_cast<int32_t>(host.interconnect.gpus.size());
  }
  if (gpus > 0 ? ranks != gpus : ranks < hosts) {
    return absl::InvalidArgumentError(
        absl::StrCat(FormatCount(ranks, "rank"), " on ",
                     gpus > 0 ? FormatCount(gpus, "GPU") : FormatCount(hosts, "host")));
  }
  for (int32_t i = 0; i < hosts; ++i) {
    const Host& host = topology.hosts[i];
    machine.nodes.push_back({host.name, host.cores, host.memory_bytes});
    for (const Gpu& gpu : host.interconnect.gpus) {
      machine.devices.push_back({.kind = DeviceKind::kCuda,
                                 .node = i,
                                 .name = gpu.model,
                                 .memory_bytes = gpu.memory_bytes,
                                 .nccl = ranks > 1,
                                 .peers = ranks > 1});
    }
    if (gpus > 0) continue;
    const int32_t of_host = ranks / hosts + (i < ranks % hosts ? 1 : 0);
    for (int32_t rank = 0; rank < of_host; ++rank) {
      machine.devices.push_back({.node = i, .name = host.cpu});
    }
  }
  return machine;
}

Topology TopologyOf(const Machine& machine) {
  Topology topology = machine.topology;
  topology.hosts.resize(machine.nodes.size());
  for (size_t i = 0; i < machine.nodes.size(); ++i) {
    Host& host = topology.hosts[i];
    std::vector<Gpu> gpus;
    for (const Device& device : machine.devices) {
      if (device.node != static_cast<int32_t>(i) || device.kind == DeviceKind::kCpu) continue;
      gpus.push_back({.name = absl::StrCat("GPU", gpus.size()),
                      .model = device.name,
                      .memory_bytes = device.memory_bytes});
    }
    if (host.interconnect.gpus.size() != gpus.size()) host = {};
    host.name = machine.nodes[i].host;
    host.cores = machine.nodes[i].cores;
    host.memory_bytes = machine.nodes[i].memory_bytes;
    if (host.interconnect.gpus.empty()) host.interconnect = Unknown(std::move(gpus));
  }
  AssumeFigures(topology);
  return topology;
}

}  // namespace skein::topology
