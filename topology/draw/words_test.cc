#include "topology/draw/words.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "topology/draw/test_topologies.h"

namespace skein::topology::draw {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::IsSupersetOf;
using ::testing::Not;

TEST(Words, HaveShortNumbers) {
  EXPECT_EQ(ShortBytes(80 * kGiB), "80 GiB");
  EXPECT_EQ(ShortBytes(85520809984), "79.6 GiB");
  EXPECT_EQ(ShortBytes(1280 * kGiB), "1.25 TiB");
  EXPECT_EQ(ShortBytes(1024 * kGiB - 1), "1 TiB");  // no "1024 GiB"
  EXPECT_EQ(ShortBytes(512 * kGiB), "512 GiB");
  EXPECT_EQ(ShortBytes(100), "100 B");
  EXPECT_EQ(ShortBytes(int64_t{1} << 62), "4194304 TiB");
  EXPECT_EQ(ShortRate(3.35e12), "3.35 TB/s");
  EXPECT_EQ(ShortRate(450e9), "450 GB/s");
  EXPECT_EQ(ShortRate(12.5e9), "12.5 GB/s");
  EXPECT_EQ(ShortRate(9.999e9), "10 GB/s");
  EXPECT_EQ(ShortRate(999.9e9), "1 TB/s");
  EXPECT_EQ(ShortRate(125e6), "125 MB/s");
}

TEST(Words, ShortenModels) {
  EXPECT_EQ(ShortModel("NVIDIA H100 80GB HBM3"), "H100 80GB HBM3");
  EXPECT_EQ(ShortModel("NVIDIA GeForce RTX 4090"), "RTX 4090");
  EXPECT_EQ(ShortModel("Tesla V100-SXM2-32GB"), "V100-SXM2-32GB");
  EXPECT_EQ(ShortModel("Intel(R) Xeon(R) Platinum 8480C"), "Xeon Platinum 8480C");
  EXPECT_EQ(ShortModel("Intel(R) Xeon(R) CPU @ 2.20GHz"), "Xeon");
  EXPECT_EQ(ShortModel("AMD EPYC 9654 96-Core Processor"), "EPYC 9654 96-Core Processor");
  EXPECT_EQ(ShortModel(""), "");
}

TEST(Words, TellOfLinks) {
  Host host = Switched(8);
  EXPECT_EQ(ConnectionWords(host, {Path::kNvlink, 18}), "NV18 · 450 GB/s");
  EXPECT_EQ(ConnectionWords(host, {Path::kSystem}), "SYS · 18 GB/s");
  EXPECT_EQ(ConnectionWords(host, {Path::kBridge}), "PHB");  // not told
  EXPECT_EQ(MeshWords(host, NvlinkMeshesOf(host.interconnect)[0]),
            "NVSwitch × 4 · NV18 · 450 GB/s each way");
  host.links.clear();
  EXPECT_EQ(MeshWords(host, NvlinkMeshesOf(host.interconnect)[0]), "NVSwitch × 4 · NV18");
  const Host cube = Dgx1V().hosts[0];
  EXPECT_EQ(MeshWords(cube, NvlinkMeshesOf(cube.interconnect)[0]),
            "NVLink · NV1 to NV2 · 25 GB/s to 50 GB/s each way");
}

TEST(Words, TellOfSlowPairs) {
  Host host = PlainHost(5, 0);
  for (int32_t other = 1; other < 5; ++other) {
    host.interconnect.slow_pairs.push_back(
        {0, other, {Origin::kMeasured, absl::Microseconds(12), 3e9}});
  }
  EXPECT_THAT(WayFacts(host),
              IsSupersetOf({"GPU0 and GPU3 only 3 GB/s, 12 µs", "1 more slow pair"}));
}

TEST(Words, TellOfHosts) {
  Host host = Switched(2);
  EXPECT_THAT(HostFacts(host), ElementsAre("Xeon Platinum 8480C", "2 sockets", "112 cores",
                                           "L2 2 MiB a core", "L3 210 MiB", "2 TiB of memory",
                                           "a core reads 12 GB/s alone, 5 GB/s with all"));
  EXPECT_THAT(WayFacts(host),
              ElementsAre("NVLink 25 GB/s a link, 2 µs", "PIX 26 GB/s, 2 µs", "NODE 22 GB/s, 2 µs",
                          "SYS 18 GB/s, 2 µs", "figures modelled"));
  EXPECT_THAT(NodeFacts(host, 1), ElementsAre("NUMA 1", "1 TiB", "CPUs 56-111"));
  EXPECT_THAT(NodeFacts(host, 5), ElementsAre("NUMA 5"));
  EXPECT_THAT(NodeFacts(host, -1), ElementsAre("NUMA node not told"));
  EXPECT_EQ(NicWords(host.interconnect.nics[0]), "InfiniBand · 50 GB/s");
  EXPECT_EQ(NicWords({.name = "NIC0"}), "");
  EXPECT_EQ(ReadWords({}), "");
  EXPECT_THAT(HostFacts({.cores = 1}), ElementsAre("1 core"));
  EXPECT_THAT(WayFacts({.cores = 1}), IsEmpty());
}

TEST(Words, TellWhereFiguresAreFrom) {
  Host host = Switched(2);
  for (Gpu& gpu : host.interconnect.gpus) gpu.rates.origin = Origin::kMeasured;
  host.core_rates.origin = Origin::kMeasured;
  EXPECT_THAT(WayFacts(host), Contains("devices measured, links modelled"));
  for (auto& [path, rate] : host.links) rate.origin = Origin::kMeasured;
  EXPECT_THAT(WayFacts(host), Contains("figures measured"));
  host.interconnect.gpus[0].rates.origin = Origin::kModelled;
  EXPECT_THAT(WayFacts(host), Contains("devices measured and modelled, links measured"));
  EXPECT_EQ(FabricWords({"InfiniBand NDR", Modelled(50e9)}),
            "InfiniBand NDR · 50 GB/s a NIC each way · 2 µs · modelled");
  EXPECT_EQ(FabricWords({"", {Origin::kMeasured, absl::ZeroDuration(), 1e9}}),
            "fabric · 1 GB/s a NIC each way · measured");
}

TEST(Words, TellOfAll) {
  EXPECT_THAT(TopologyFacts(DgxH100(2)),
              ElementsAre("2 hosts", "16 GPUs", "H100 80GB HBM3", "1.25 TiB of GPU memory",
                          "224 cores", "4 TiB of memory"));
  Topology mixed = DgxH100(2);
  mixed.hosts[1].interconnect.gpus[0].model = "NVIDIA H200";
  EXPECT_THAT(TopologyFacts(mixed), Not(Contains("H100 80GB HBM3")));
  EXPECT_THAT(TopologyFacts(CpuHosts(1)), ElementsAre("1 host", "112 cores", "2 TiB of memory"));
  EXPECT_THAT(LeftOutFacts(DgxH100(9), {.left_out = {2, 3, 7}}, 24),
              ElementsAre("… 3 more, alike", "node2 to node7", "24 ranks"));
  EXPECT_THAT(LeftOutFacts(DgxH100(9), {.left_out = {2}, .left_out_alike = false}, 0),
              ElementsAre("… 1 more", "node2"));
}

}  // namespace
}  // namespace skein::topology::draw
