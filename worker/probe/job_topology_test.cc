#include "worker/probe/job_topology.h"

#include <string>

#include "base/test_util.h"
#include "gtest/gtest.h"
#include "topology/figures/figures_key.h"
#include "topology/presets/presets.h"
#include "worker/device_comm.h"

namespace skein::worker {
namespace {

using topology::Path;

topology::Host Dgx1() {
  topology::Host host = topology::MakePreset("dgx-1v")->hosts[0];
  for (size_t i = 0; i < host.interconnect.gpus.size(); ++i) {
    host.interconnect.gpus[i].bus_id = "0000:0" + std::to_string(i) + ":00.0";
  }
  return host;
}

TEST(KeepGpusOfRanksTest, GpusStandInTheOrderOfTheirRanks) {
  topology::Host host = Dgx1();
  const topology::Interconnect all = host.interconnect;
  // CUDA writes addresses otherwise than sysfs does.
  KeepGpusOfRanks({{"V100", "00000000:05:00.0", 7}, {"V100", "0000:01:00.0", 8}}, host);
  const topology::Interconnect& of = host.interconnect;
  ASSERT_EQ(of.gpus.size(), 2U);
  EXPECT_EQ(of.gpus[0].bus_id, all.gpus[5].bus_id);
  EXPECT_EQ(of.gpus[0].rates, all.gpus[5].rates);
  EXPECT_EQ(of.gpus[0].memory_bytes, 7);
  EXPECT_EQ(of.gpus[1].name, "GPU1");
  EXPECT_EQ(of.OfGpus(0, 1), all.OfGpus(5, 1));
  ASSERT_EQ(of.nics.size(), all.nics.size());
  EXPECT_EQ(of.OfGpuAndNic(0, 2), all.OfGpuAndNic(5, 2));
  EXPECT_EQ(of.OfGpuAndNic(1, 0), all.OfGpuAndNic(1, 0));
  EXPECT_EQ(host.whole, all);  // which has others, too
  topology::Topology whole{.hosts = {host}};
  SKEIN_EXPECT_OK(topology::CheckTopology(whole));
}

TEST(KeepGpusOfRanksTest, RanksMayShareAGpuAndHaveUnknownOnes) {
  topology::Host host = Dgx1();
  KeepGpusOfRanks(
      {{"V100", "0000:02:00.0", 1}, {"V100", "0000:02:00.0", 1}, {"A100", "0000:77:00.0", 1}},
      host);
  const topology::Interconnect& of = host.interconnect;
  EXPECT_EQ(of.OfGpus(0, 1).path, Path::kSwitch);
  EXPECT_EQ(of.OfGpus(0, 2).path, Path::kBridge);
  EXPECT_EQ(of.gpus[2].bus_id, "0000:77:00.0");
  EXPECT_TRUE(of.gpus[2].rates.reads.empty());
  EXPECT_EQ(host.whole.gpus.size(), 8U);
  std::vector<RankGpu> all;
  for (const topology::Gpu& gpu : host.whole.gpus) all.push_back({"V100", gpu.bus_id, 1});
  host = Dgx1();
  KeepGpusOfRanks(all, host);
  EXPECT_TRUE(host.whole.gpus.empty());  // there are no others
  topology::Topology whole{.hosts = {host}};
  SKEIN_EXPECT_OK(topology::CheckTopology(whole));
}

// Who asks for what was kept, and knows no flag of ranks, finds that of ranks without one.
TEST(FiguresOfTest, RanksExchangeByTheirDefault) {
  EXPECT_EQ(topology::FiguresOf().device_comm, DeviceCommName(DeviceComm::kAuto));
}

}  // namespace
}  // namespace skein::worker
