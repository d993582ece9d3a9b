// What pictures of machines say, in few words, for people. Pure; any thread. Names come as they
// are: the pictures escape them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "topology/draw/shape.h"
#include "topology/topology.h"

namespace skein::topology::draw {

std::string ShortBytes(int64_t bytes);           // "80 GiB", "79.6 GiB"
std::string ShortRate(double bytes_per_s);       // "3.35 TB/s", "450 GB/s"
std::string ShortModel(std::string_view model);  // without its maker: "H200", "Xeon Platinum 8480C"

// "450 GB/s", of all its links; empty: not told.
std::string RateOf(const Host& host, const Connection& connection);
// "NV18 · 450 GB/s", "PIX"
std::string ConnectionWords(const Host& host, const Connection& connection);
// "host bridge", of what traffic between GPUs passes.
std::string_view PathWords(Path path);
// "NVSwitch × 4 · NV18 · 450 GB/s each way", "NVLink · NV1 to NV2 · 25 GB/s to 50 GB/s each way".
std::string MeshWords(const Host& host, const NvlinkMesh& mesh);

std::string ReadWords(const DeviceRates& rates);  // "3.35 TB/s", of what no cache holds; or empty
std::string NicWords(const Nic& nic);             // "InfiniBand · 50 GB/s"; may be empty
// "InfiniBand NDR · 50 GB/s a NIC each way · 2 µs · modelled"
std::string FabricWords(const Fabric& fabric);
// "NUMA 0", "1 TiB", "CPUs 0-55".
std::vector<std::string> NodeFacts(const Host& host, int32_t numa_node);
// What a card says of its host: processor, sockets, cores, caches, memory, reads of a core.
std::vector<std::string> HostFacts(const Host& host);
// The rates of the ways between its devices, "SYS 18 GB/s", and where the figures are from.
std::vector<std::string> WayFacts(const Host& host);
// "2 hosts", "16 GPUs", "1.25 TiB of GPU memory".
std::vector<std::string> TopologyFacts(const Topology& topology);
// "… 125 more, alike", "node2 to node126", "1000 ranks".
std::vector<std::string> LeftOutFacts(const Topology& topology, const ShownHost& shown,
                                      int64_t ranks);

}  // namespace skein::topology::draw
