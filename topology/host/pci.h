// Where PCI devices sit, by the kernel's tree: the real path of a device,
// /sys/devices/pci0000:15/0000:15:01.0/0000:16:00.0/0000:17:00.0/0000:18:00.0, names its host
// bridge, then each bridge that traffic to it passes, then itself. A PCIe switch is a bridge above
// (its upstream port) and one for each device below.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "topology/interconnect.h"

namespace skein::topology {

// The address of the PCI device that a file or folder of /sys lies in or links to; empty for none.
std::string PciAddressOfFile(const std::string& path);

struct PciPlace {
  std::vector<std::string> chain;  // from the host bridge to the device; empty: not told
  int32_t numa_node = -1;          // not told
};

// `root` is put before /sys. Reads a link and a file.
PciPlace PlaceOf(std::string_view address, const std::string& root);

// What traffic between two devices passes, never Path::kSelf. Where nothing is told of one of them,
// the farthest that it can be.
Path PathBetween(const PciPlace& a, const PciPlace& b);

}  // namespace skein::topology
