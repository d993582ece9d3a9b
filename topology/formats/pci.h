// Where devices hang in the tree of PCI, and what lies between two of them.
#pragma once

#include <cstdint>
#include <vector>

#include "topology/interconnect.h"

namespace skein::topology {

// By its class, 0x020700: InfiniBand or ethernet, or unknown.
NicKind NicKindOfClass(uint32_t pci_class);

// Numbers are the reader's own: equal ones are the same thing.
struct TreePlace {
  int host_bridge = -1;       // -1: not told, or none
  int32_t numa_node = -1;     // -1: not told
  std::vector<int> switches;  // below the host bridge, from there on
};

// Never kSelf: PIX below the same switch and no other, also for two ports of one device, PXB where
// further switches are between, PHB below one host bridge, NODE below two of one NUMA node, and SYS
// where that is not so or not told.
Path PathBetween(const TreePlace& a, const TreePlace& b);

// [places][places], with no NVLinks.
std::vector<std::vector<Connection>> ConnectionsBetween(const std::vector<TreePlace>& places);

}  // namespace skein::topology
