// Addresses of PCI devices.
#pragma once

#include <string>
#include <string_view>

namespace skein::topology {

// "0000:9a:00.0", as the kernel writes it, of "00000000:9A:00.0" and the like, whose domain has 4
// to 8 digits; empty for what is no address of four parts.
std::string PciAddress(std::string_view text);

}  // namespace skein::topology
