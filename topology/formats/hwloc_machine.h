// A machine in hwloc's XML, for tests.
#pragma once

#include <string>

namespace skein::topology {

// Below the first package a host bridge with what boards have (eno1), and another with a root port
// and a switch. Below this two GPUs (0000:0a:00.0, 0000:13:00.0; gp_index 41, 42 of NVML), mlx5_0
// of InfiniBand and a second switch with a GPU (0000:16:00.0; 43). Below the second package a GPU
// (0000:81:00.0; 48) and mlx5_1 of RoCE, each with its root port. `behind` follows the objects.
std::string HwlocMachine(const std::string& behind);

// GPU0 and GPU1 have 4 links, GPU2 and GPU3 two.
inline constexpr char kHwlocMatrix[] =
    "<distances2 type='OSDev' nbobjs='4' kind='9' name='NVLinkBandwidth' indexing='gp'>\n"
    "<indexes length='6'>41 42 </indexes><indexes length='6'>43 48 </indexes>\n"
    "<u64values length='38'>1000000 100000 0 0 100000 1000000 0 0 </u64values>\n"
    "<u64values length='36'>0 0 1000000 50000 0 0 50000 1000000 </u64values>\n"
    "</distances2>\n";

// Parts of such a machine.
std::string HwlocDevice(int gp_index, const char* bus_id, const char* type,
                        const std::string& inside);  // of PCI
std::string HwlocOsDevice(int gp_index, const char* name, int type, const std::string& inside = "");
std::string HwlocHostBridge(int gp_index, const char* buses, const std::string& inside);

}  // namespace skein::topology
