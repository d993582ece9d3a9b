// The machine that a job runs on, as plain data: nodes, the devices on them, the links between.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace skein::topology {

// One operating system's worth of cores and memory.
struct Node {
  std::string host;
  int32_t cores = 0;  // that the job may use (affinity and cgroup applied)
  // What the job's ranks on this node may take together: the smaller of free memory and what is
  // left under the cgroup's limit.
  int64_t memory_bytes = 0;
};

// What one rank computes on.
struct Device {
  enum class Kind : uint8_t { kCpu };
  Kind kind = Kind::kCpu;
  int32_t node = 0;  // index into Machine::nodes
};

// The devices of one job; device i belongs to rank i.
struct Machine {
  std::vector<Node> nodes;
  std::vector<Device> devices;
};

}  // namespace skein::topology
