// Processors of a node, as Linux lists them.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace skein::topology {

inline constexpr int kMaxProcessors = 8192;  // of a host, as Linux is built for

// Processors by the kernel's numbers, ascending.
using Cpus = std::vector<int>;

// "0-3,8" is 0, 1, 2, 3 and 8; none for what is no such list.
Cpus ParseCpus(std::string_view list);
std::string FormatCpus(const Cpus& cpus);

// A mask of words of 32 bits in hexadecimal, the most significant first, as sysfs, NCCL and hwloc
// write them: "000000ff,ffff0000" or "0x000000ff,,0x1", where a word that is left out is 0. Nothing
// for what is no such mask, as for one without end, "0xf...f".
std::optional<Cpus> ParseCpuMask(std::string_view mask);

}  // namespace skein::topology
