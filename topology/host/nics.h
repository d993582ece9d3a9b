// The NICs of the node, by /sys/class/infiniband and /sys/class/net.
#pragma once

#include <string>
#include <vector>

#include "topology/interconnect.h"

namespace skein::topology {

// One for each PCI function that has ports, "NIC0" on: those with RDMA first, each kind in the
// order of its names. Left out are those without hardware, those on USB, those that say that they
// are down, and virtual functions beside their physical one; all beyond the 64th, too. What a file
// does not tell, or garbles, is not told. `root` is put before /sys. Reads a few files a NIC.
std::vector<Nic> FindNics(const std::string& root);

}  // namespace skein::topology
