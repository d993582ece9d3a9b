// What of a host stands beside what on its card, before anything has a place. Pure; any thread.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "topology/draw/rank_label.h"
#include "topology/draw/shape.h"
#include "topology/topology.h"

namespace skein::topology::draw {

// The ranks of a host, in the order of the plan.
struct HostRanks {
  std::vector<std::vector<const RankLabel*>> gpus;  // [gpus]
  std::vector<const RankLabel*> cores;
};
// [hosts]. Ranks of hosts and GPUs that are not there are left out. They point into `ranks`.
std::vector<HostRanks> RanksOf(const Topology& topology, absl::Span<const RankLabel> ranks);

int64_t CountOf(const HostRanks& ranks);

struct Packing {
  // A group with GPUs, or a column of NICs without.
  struct Unit {
    int group = -1;
    std::vector<int> nics;
    double width = 0;
  };
  // A NUMA node, or as much of it as fits.
  struct Part {
    int32_t numa_node = -1;
    std::vector<Unit> units;  // none: a node without devices
    std::vector<int> gpus;    // of the units
    int cpus = 0;             // that are drawn, of a host without devices
    double gap = 0;           // before it
    double width = 0;
  };
  using Deck = std::vector<Part>;  // from left to right

  std::vector<Deck> decks;
  std::vector<PcieGroup> groups;        // those with GPUs
  std::vector<NvlinkMesh> meshes;       // that bars show
  std::vector<std::vector<int>> lanes;  // [gpus]: the others to which lanes are drawn
  bool bridges = false;                 // PCIe lies between some GPUs
  bool switches = false;                // some groups have one
  int nic_rows = 0;
  double tile_height = 0;
  double nic_height = 0;

  // From the upper edges of tiles to the lower ones of NICs.
  double DevicesHeight() const;
};

Packing Pack(const Host& host, const HostRanks& ranks);

// The NICs of a group that stand in a row.
int NicsOfRow(const PcieGroup& group);
double WidthOf(const Packing::Deck& deck);
// What lies between the GPUs of two parts where NVLink does not; null: nothing to draw.
const Connection* Between(const Interconnect& of, const Packing::Part& a, const Packing::Part& b);

}  // namespace skein::topology::draw
