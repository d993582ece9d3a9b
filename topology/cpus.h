// Processors of a node, as Linux lists them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace skein::topology {

// Processors by the kernel's numbers, ascending.
using Cpus = std::vector<int>;

// "0-3,8" is 0, 1, 2, 3 and 8; none for what is no such list.
Cpus ParseCpus(std::string_view list);
std::string FormatCpus(const Cpus& cpus);

}  // namespace skein::topology
