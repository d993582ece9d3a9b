// What of a topology belongs together in a picture. Pure; any thread. Takes what CheckTopology
// takes.
#pragma once

#include <cstdint>
#include <vector>

#include "topology/topology.h"

namespace skein::topology::draw {

// GPUs and NICs that meet at PCIe switches, or a device that meets none.
struct PcieGroup {
  std::vector<int> gpus;
  std::vector<int> nics;
  // The longest path between two of them that is told, kSwitch or kSwitches; kSelf: one device.
  Path longest = Path::kSelf;

  friend bool operator==(const PcieGroup&, const PcieGroup&) = default;
};

// A NUMA node with what is near it.
struct Place {
  int32_t numa_node = -1;         // -1: not told
  std::vector<PcieGroup> groups;  // by their first GPUs, those of NICs alone behind

  friend bool operator==(const Place&, const Place&) = default;
};

// All NUMA nodes of a host, also those without devices; the place that is not told comes last and
// only where something is there. A NIC is where the GPU nearest to it is, unless that is beyond the
// link between NUMA nodes.
std::vector<Place> PlacesOf(const Host& host);

// GPUs that NVLinks join, straight or by way of others of them; two at least.
struct NvlinkMesh {
  std::vector<int> gpus;
  int32_t nvlinks = 0;  // between each two; 0: they differ, or some two have none

  friend bool operator==(const NvlinkMesh&, const NvlinkMesh&) = default;
};
std::vector<NvlinkMesh> NvlinkMeshesOf(const Interconnect& of);

// Whether two hosts look alike but for their names and for what was measured.
bool Alike(const Host& a, const Host& b);

// A host to draw, or those that stand behind it and are not drawn.
struct ShownHost {
  int host = -1;               // -1: none is drawn
  std::vector<int> left_out;   // ascending
  bool left_out_alike = true;  // they are as the hosts before and behind

  friend bool operator==(const ShownHost&, const ShownHost&) = default;
};

// All hosts where there are 8 or fewer. Else the first two and the last of each kind of more than
// three, kind by kind, and no more than 32 altogether.
std::vector<ShownHost> HostsToShow(const Topology& topology);

}  // namespace skein::topology::draw
