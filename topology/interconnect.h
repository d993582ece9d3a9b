// The GPUs and NICs of one node, and what lies between each two of them, as plain data.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "topology/cpus.h"
#include "topology/rates.h"

namespace skein::topology {

// What traffic between two devices passes, nearest first, by nvidia-smi's names.
enum class Path : uint8_t {
  kSelf,      // X
  kNvlink,    // NV#: NVLinks, straight or through NVSwitches
  kSwitch,    // PIX: one PCIe switch at most
  kSwitches,  // PXB: several of them, no host bridge
  kBridge,    // PHB: a host bridge of PCIe, mostly the CPU's
  kNode,      // NODE: host bridges of one NUMA node
  kSystem,    // SYS: the link between NUMA nodes
};
std::string_view PathName(Path path);  // "PIX"

struct Connection {
  Path path = Path::kSelf;
  int32_t nvlinks = 0;  // of kNvlink

  friend bool operator==(const Connection&, const Connection&) = default;
};
std::string ToString(const Connection& connection);  // "NV18", "PIX"

struct Gpu {
  std::string name;          // "GPU0"
  std::string model;         // as its maker calls it, "NVIDIA H200"; empty: not told
  std::string bus_id;        // of PCI, "0000:9a:00.0"; empty: not told
  int64_t memory_bytes = 0;  // that is there to take; 0: not told
  Cpus cpus;                 // near it; empty: not told
  int32_t numa_node = -1;    // not told
  DeviceRates rates;
  LinkRate to_host;  // from pinned memory and back, the slower way

  friend bool operator==(const Gpu&, const Gpu&) = default;
};

enum class NicKind : uint8_t { kUnknown, kEthernet, kInfiniBand };
std::string_view NicKindName(NicKind kind);  // "", "ethernet", "infiniband"

struct Nic {
  std::string name;    // "NIC0"
  std::string device;  // of the system, "mlx5_0"; empty: not told
  std::string bus_id;  // of PCI; empty: not told, or none
  NicKind kind = NicKind::kUnknown;
  double bytes_per_s = 0;  // each way; 0: not told

  friend bool operator==(const Nic&, const Nic&) = default;
};

// Two GPUs whose way carries less than others of its path (Host::links), or takes longer.
struct SlowPair {
  int32_t first = 0;  // less than `second`
  int32_t second = 0;
  LinkRate link;  // of all their NVLinks together

  friend bool operator==(const SlowPair&, const SlowPair&) = default;
};

struct Interconnect {
  std::vector<Gpu> gpus;
  std::vector<Nic> nics;
  // [gpus + nics][gpus + nics], by GPU, then by NIC. Symmetric.
  std::vector<std::vector<Connection>> connections;
  int32_t nvswitches = 0;            // that NVLinks pass; 0: none, or not told
  std::vector<SlowPair> slow_pairs;  // by first, then by second GPU, ascending

  const Connection& OfGpus(int i, int j) const { return connections[i][j]; }
  const Connection& OfGpuAndNic(int gpu, int nic) const {
    return connections[gpu][static_cast<int>(gpus.size()) + nic];
  }

  friend bool operator==(const Interconnect&, const Interconnect&) = default;
};

// GPUs in groups in which each two are connected by NVLink, or by a path no longer than `longest`:
// where tensor parallelism may go. Each GPU is in the first group that it fits, in their order.
std::vector<std::vector<int>> Islands(const Interconnect& of, Path longest = Path::kNvlink);

// The own way of a pair that is slow, in whichever order; null: it is as others of its path.
const LinkRate* SlowLink(const Interconnect& of, int a, int b);

// Makes the slow pairs of `from` those of `of`, whose GPUs have the same addresses of PCI.
void TakeSlowPairs(const Interconnect& from, Interconnect& of);

// The NICs nearest to a GPU, of which there may be several; none where the node has none.
std::vector<int> NearestNics(const Interconnect& of, int gpu);

}  // namespace skein::topology
