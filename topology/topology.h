// Machines as a planner sees them, whether or not anybody is on them: nodes with what they hold and
// what it does in a second, and the fabric between the nodes. Plain data.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "topology/cpus.h"
#include "topology/interconnect.h"
#include "topology/rates.h"

namespace skein::topology {

inline constexpr int32_t kMaxHosts = 1024;
inline constexpr int32_t kMaxGpusOfHost = 64;

struct NumaNode {
  Cpus cpus;
  int64_t memory_bytes = 0;

  friend bool operator==(const NumaNode&, const NumaNode&) = default;
};

// A node with all that is on it, its GPUs as ranks will find them.
struct Host {
  std::string name;  // two hosts have different ones; empty: not told
  std::string cpu;   // as its maker calls it; empty: not told
  int32_t sockets = 0;
  int32_t cores = 0;         // that may be used; 0: not told
  int64_t memory_bytes = 0;  // that may be taken
  int64_t l2_bytes = 0;      // of a core; 0: not told
  int64_t l3_bytes = 0;      // of all sockets together; 0: not told
  int64_t shm_bytes = 0;     // of /dev/shm, free; 0: not told
  std::vector<NumaNode> numa_nodes;
  Interconnect interconnect;
  // Of all devices of the host, where `interconnect` has those of a job; empty: not told.
  Interconnect whole;
  // Of a rank that computes on one core.
  DeviceRates core_rates;
  // Between two GPUs, by the path between them, each way; NVLink's is of one link. Path::kSelf's is
  // between two ranks that compute on cores.
  std::vector<std::pair<Path, LinkRate>> links;
  std::vector<ExchangeCurve> exchanges;  // measured; where there are none, links tell

  friend bool operator==(const Host&, const Host&) = default;
};

// Whether they differ in their names alone.
bool AlikeButForName(const Host& a, const Host& b);

// What connects nodes.
struct Fabric {
  std::string name;  // "InfiniBand NDR"; empty: not told
  LinkRate link;     // of one NIC to another

  friend bool operator==(const Fabric&, const Fabric&) = default;
};

struct Topology {
  std::string name;  // of a preset; may be empty
  std::vector<Host> hosts;
  Fabric fabric;  // where there are several hosts

  friend bool operator==(const Topology&, const Topology&) = default;
};

// InvalidArgument names the place, "hosts[0].interconnect.connections[2][3]", and says what is
// wrong: no hosts or more than kMaxHosts, two of one name, a matrix that is not square or not
// symmetric, negative or infinite numbers, rates that do not ascend. What files leave out may be
// missing: plans need more (cost::CheckComplete).
absl::Status CheckTopology(const Topology& topology);
// The same of one host, which is at `where`: "hosts[0]".
absl::Status CheckHost(const std::string& where, const Host& host);

}  // namespace skein::topology
