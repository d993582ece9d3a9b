// Machines for tests of what draws them.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "topology/topology.h"

namespace skein::topology {

inline constexpr int64_t kGiB = int64_t{1} << 30;

inline LinkRate Modelled(double bytes_per_s) {
  return {Origin::kModelled, absl::Microseconds(2), bytes_per_s};
}

inline Cpus CpuRange(int first, int count) {
  Cpus cpus;
  for (int i = 0; i < count; ++i) cpus.push_back(first + i);
  return cpus;
}

// Two sockets of 56 cores, GPUs and NICs spread over them, all SYS apart and NODE on one socket.
inline Host PlainHost(int gpus, int nics, const std::string& model = "NVIDIA H100 80GB HBM3") {
  Host host = {.name = "node0", .cpu = "Intel(R) Xeon(R) Platinum 8480C", .sockets = 2};
  host.cores = 112;
  host.memory_bytes = 2048 * kGiB;
  host.l2_bytes = int64_t{2} << 20;
  host.l3_bytes = int64_t{210} << 20;
  host.core_rates.origin = Origin::kModelled;
  host.core_rates.reads = {{kGiB, 12e9, 5e9}};
  for (int node = 0; node < 2; ++node) {
    host.numa_nodes.push_back({CpuRange(56 * node, 56), 1024 * kGiB});
  }
  Interconnect& of = host.interconnect;
  std::vector<int> nodes;
  for (int i = 0; i < gpus; ++i) {
    Gpu gpu = {.name = absl::StrCat("GPU", i), .model = model, .memory_bytes = 80 * kGiB};
    gpu.numa_node = gpus > 1 ? 2 * i / gpus : 0;
    gpu.rates = {.origin = Origin::kModelled, .reads = {{8 * kGiB, 3.35e12, 3.35e12}}};
    nodes.push_back(gpu.numa_node);
    of.gpus.push_back(std::move(gpu));
  }
  for (int i = 0; i < nics; ++i) {
    of.nics.push_back({.name = absl::StrCat("NIC", i),
                       .device = absl::StrCat("mlx5_", i),
                       .kind = NicKind::kInfiniBand,
                       .bytes_per_s = 50e9});
    nodes.push_back(nics > 1 ? 2 * i / nics : 0);
  }
  const int devices = gpus + nics;
  of.connections.resize(devices, std::vector<Connection>(devices));
  for (int i = 0; i < devices; ++i) {
    for (int j = 0; j < devices; ++j) {
      if (i != j) of.connections[i][j] = {nodes[i] == nodes[j] ? Path::kNode : Path::kSystem};
    }
  }
  host.links = {{Path::kSwitch, Modelled(26e9)},
                {Path::kNode, Modelled(22e9)},
                {Path::kSystem, Modelled(18e9)}};
  return host;
}

inline void Connect(Host& host, int i, int j, Connection connection) {
  std::vector<std::vector<Connection>>& all = host.interconnect.connections;
  all[i][j] = all[j][i] = connection;
}

inline void SetNvlinkRate(Host& host, double bytes_per_s) {
  host.links.insert(host.links.begin(), {Path::kNvlink, Modelled(bytes_per_s)});
}

// `hosts` alike, numbered, with a fabric where there are several.
inline Topology Alike(const Host& host, int hosts) {
  Topology topology;
  for (int i = 0; i < hosts; ++i) {
    topology.hosts.push_back(host);
    topology.hosts.back().name = absl::StrCat("node", i);
  }
  if (hosts > 1) topology.fabric = {"InfiniBand NDR", Modelled(50e9)};
  return topology;
}

// GPUs over NVSwitches, a NIC beside each.
inline Host Switched(int gpus, int nvswitches = 4) {
  Host host = PlainHost(gpus, gpus);
  for (int i = 0; i < gpus; ++i) {
    for (int j = 0; j < i; ++j) Connect(host, i, j, {Path::kNvlink, 18});
    Connect(host, i, gpus + i, {Path::kSwitch});
  }
  host.interconnect.nvswitches = nvswitches;
  SetNvlinkRate(host, 25e9);
  return host;
}

inline Topology DgxH100(int hosts) {
  Topology topology = Alike(Switched(8), hosts);
  topology.name = "dgx-h100";
  return topology;
}

// Eight GPUs of six NVLinks each, pairs of which share a switch and a NIC.
inline Topology Dgx1V() {
  Host host = PlainHost(8, 4, "Tesla V100-SXM2-32GB");
  const struct {
    int i, j, links;
  } links[] = {{0, 1, 1}, {0, 2, 1}, {0, 3, 2}, {0, 4, 2}, {1, 2, 2}, {1, 3, 1},
               {1, 5, 2}, {2, 3, 2}, {2, 6, 1}, {3, 7, 1}, {4, 5, 1}, {4, 6, 1},
               {4, 7, 2}, {5, 6, 2}, {5, 7, 1}, {6, 7, 2}};
  for (int gpu = 0; gpu < 8; ++gpu) Connect(host, gpu, 8 + gpu / 2, {Path::kSwitch});
  for (const auto& link : links) Connect(host, link.i, link.j, {Path::kNvlink, link.links});
  SetNvlinkRate(host, 25e9);
  Topology topology = Alike(host, 1);
  topology.name = "dgx-1v";
  return topology;
}

// No NVLink: two GPUs on each socket.
inline Topology Pcie4() {
  Host host = PlainHost(4, 1, "NVIDIA L40S");
  Topology topology = Alike(host, 1);
  topology.name = "pcie-4";
  return topology;
}

inline Topology CpuHosts(int hosts) {
  Host host = PlainHost(0, 0);
  host.links = {{Path::kSelf, {Origin::kMeasured, absl::Nanoseconds(500), 8e9}}};
  host.core_rates.origin = Origin::kMeasured;
  Topology topology = Alike(host, hosts);
  topology.name = "cpu";
  topology.fabric.name = hosts > 1 ? "100 Gb Ethernet" : "";
  topology.fabric.link.origin = Origin::kMeasured;
  return topology;
}

}  // namespace skein::topology
