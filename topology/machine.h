// The machine that a job runs on, as plain data: nodes, the devices on them, the links between.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/device_kind.h"
#include "topology/topology.h"

namespace skein::topology {

// One operating system's worth of cores and memory.
struct Node {
  std::string host;   // two nodes have different names
  int32_t cores = 0;  // that the job may use (affinity and cgroup applied)
  // The memory that the job's ranks on this node may take together: the smaller of free memory and
  // what the cgroup's limit leaves.
  int64_t memory_bytes = 0;

  friend bool operator==(const Node&, const Node&) = default;
};

// The device that one rank computes on.
struct Device {
  DeviceKind kind = DeviceKind::kCpu;
  int32_t node = 0;  // index into Machine::nodes
  std::string name;  // as its maker calls it: "AMD EPYC 9654"
  // Of its own memory what the rank may take: its part of what was free when it reported. 0: it
  // takes the node's.
  int64_t memory_bytes = 0;
  // What the job's ranks exchange by, where each has a GPU. Both take some of that memory.
  bool nccl = false;
  bool peers = false;  // beside it: small sums go over peer memory where they can

  friend bool operator==(const Device&, const Device&) = default;
};

// A rank's report on where it runs.
struct RankReport {
  Node node;
  Device device;  // its node is not known yet
  // Of one rank of each host: what was found and measured of it, and of what connects it to others.
  // GPUs are those of its ranks, in their order.
  std::optional<Topology> told = std::nullopt;
};

// The devices of one job; device i belongs to rank i.
struct Machine {
  std::vector<Node> nodes;
  std::vector<Device> devices;
  // What the nodes do in a second, [nodes]; empty: nobody has told.
  Topology topology = {};

  friend bool operator==(const Machine&, const Machine&) = default;
};

// The machine of a job whose rank i reported reports[i]. Nodes are in
// the order of their first rank. Ranks of one host measure at different times: the least memory
// counts, since some ranks may have begun to take theirs. The most cores count, since a launcher
// may have bound a rank to a part of them.
Machine MachineFromRanks(const std::vector<RankReport>& reports);

// A job of so many ranks on hosts as a probe tells of them: one on each GPU, host after host, or,
// where no host has any, as many on each host, the first ones one more. InvalidArgument for another
// number of ranks than of GPUs, and for fewer ranks than hosts.
absl::StatusOr<Machine> MachineOf(const Topology& topology, int32_t ranks);

// The machine's nodes with figures: those that ranks told where they tell of the node's very ranks,
// else assumed ones (AssumeFigures). Rank i of a node computes on its GPU i, or on its cores.
Topology TopologyOf(const Machine& machine);

}  // namespace skein::topology
