#include "topology/machine.h"

#include "base/device_kind.h"
#include "base/dtype.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "topology/presets/presets.h"

namespace skein::topology {
namespace {

using ::testing::ElementsAre;

std::vector<int32_t> NodesOfRanks(const Machine& machine) {
  std::vector<int32_t> nodes;
  for (const Device& device : machine.devices) nodes.push_back(device.node);
  return nodes;
}

TEST(MachineFromRanks, GroupsRanksByHostInOrderOfTheFirstRank) {
  const Node zeta{"zeta", 8, 100}, alpha{"alpha", 2, 50};
  const Machine machine = MachineFromRanks({{zeta, {}}, {alpha, {}}, {alpha, {}}, {zeta, {}}});
  EXPECT_THAT(machine.nodes, ElementsAre(zeta, alpha));
  EXPECT_THAT(NodesOfRanks(machine), ElementsAre(0, 1, 1, 0));
}

TEST(MachineFromRanks, TakesTheLeastMemoryAndTheMostCores) {
  const Machine machine = MachineFromRanks({{{"a", 2, 90}, {}},
                                            {{"b", 7, 10}, {}},
                                            {{"a", 4, 100}, {}},
                                            {{"a", 1, 80}, {}},
                                            {{"a", 3, 85}, {}}});
  EXPECT_THAT(machine.nodes, ElementsAre(Node{"a", 4, 80}, Node{"b", 7, 10}));
}

TEST(MachineFromRanks, KeepsEveryRanksDevice) {
  const Device slow{.name = "slow", .memory_bytes = 7}, fast{.name = "fast"};
  const Machine machine =
      MachineFromRanks({{{"a", 2, 90}, slow}, {{"b", 2, 90}, fast}, {{"a", 2, 90}, fast}});
  ASSERT_EQ(machine.devices.size(), 3u);
  EXPECT_EQ(machine.devices[0], slow);
  EXPECT_EQ(machine.devices[1].name, "fast");
  EXPECT_EQ(machine.devices[2].name, "fast");
  EXPECT_EQ(machine.devices[1].node, 1);
}

Topology Told(const std::string& name, double bytes_per_s) {
  Topology told{.hosts = {{.name = name, .cores = 1, .memory_bytes = 1}}};
  told.hosts[0].core_rates.reads = {{1 << 20, bytes_per_s, bytes_per_s}};
  told.hosts[0].core_rates.products = {{DType::kBF16, 0, 1, 1e9}};
  told.hosts[0].core_rates.origin = Origin::kMeasured;
  return told;
}

TEST(TopologyOf, WhatRanksToldStaysWithTheNodesOfNow) {
  RankReport first{{"a", 4, 90}, {}, Told("sometime-else", 5)};
  first.told->fabric.link = {.bytes_per_s = 2e9};
  RankReport third{{"b", 2, 50}, {}, Told("b", 7)};
  third.told->fabric.link = {.bytes_per_s = 3e9};
  const Topology topology = TopologyOf(MachineFromRanks({first, {{"a", 4, 80}, {}}, third}));
  ASSERT_EQ(topology.hosts.size(), 2u);
  EXPECT_EQ(topology.hosts[0].name, "a");
  EXPECT_EQ(topology.hosts[0].cores, 4);
  EXPECT_EQ(topology.hosts[0].memory_bytes, 80);
  EXPECT_EQ(topology.hosts[0].core_rates.reads[0].alone_bytes_per_s, 5);
  EXPECT_EQ(topology.hosts[1].core_rates.reads[0].alone_bytes_per_s, 7);
  EXPECT_EQ(topology.fabric.link.bytes_per_s, 2e9);  // the slower one
  EXPECT_TRUE(CheckTopology(topology).ok());
}

TEST(TopologyOf, WhatNobodyToldIsAssumed) {
  const RankReport cpu{{"a", 4, 90}, {}};
  const Topology cores = TopologyOf(MachineFromRanks({cpu, {{"b", 4, 90}, {}}}));
  EXPECT_EQ(cores.hosts[1].core_rates.origin, Origin::kModelled);
  EXPECT_FALSE(cores.hosts[1].core_rates.reads.empty());
  EXPECT_GT(cores.fabric.link.bytes_per_s, 0);
  EXPECT_TRUE(CheckTopology(cores).ok());

  const Device h200{.kind = DeviceKind::kCuda, .name = "NVIDIA H200", .memory_bytes = 100};
  RankReport gpu{{"a", 4, 90}, h200, Told("a", 5)};  // which tells of no GPUs
  const Topology gpus = TopologyOf(MachineFromRanks({gpu, {{"a", 4, 90}, h200}}));
  ASSERT_EQ(gpus.hosts[0].interconnect.gpus.size(), 2u);
  EXPECT_EQ(gpus.hosts[0].interconnect.gpus[1].memory_bytes, 100);
  EXPECT_EQ(gpus.hosts[0].interconnect.gpus[1].rates.reads[0].alone_bytes_per_s, 4800e9);
  EXPECT_TRUE(CheckTopology(gpus).ok());
  // Nor of other GPUs than these.
  Host& host = gpu.told->hosts[0];
  host.interconnect.gpus.resize(1);
  host.interconnect.connections = {{{}}};
  const Topology others = TopologyOf(MachineFromRanks({gpu, {{"a", 4, 90}, h200}}));
  EXPECT_EQ(others.hosts[0].interconnect.gpus.size(), 2u);
}

TEST(MachineFromRanks, NoRanksAreNoMachine) { EXPECT_EQ(MachineFromRanks({}), Machine{}); }

TEST(MachineOfTest, GpusAreTheRanksHostAfterHost) {
  Topology topology = *MakePreset("pcie-4");
  topology.hosts.push_back(topology.hosts.front());
  topology.hosts[0].name = "a";
  topology.hosts[1].name = "b";
  const Machine machine = *MachineOf(topology, 8);
  EXPECT_THAT(NodesOfRanks(machine), ElementsAre(0, 0, 0, 0, 1, 1, 1, 1));
  EXPECT_EQ(machine.nodes[1].host, "b");
  EXPECT_EQ(machine.devices[7].kind, DeviceKind::kCuda);
  EXPECT_EQ(machine.devices[7].memory_bytes, topology.hosts[1].interconnect.gpus[3].memory_bytes);
  EXPECT_EQ(TopologyOf(machine).hosts[1].interconnect.gpus[3].rates.reads,
            topology.hosts[1].interconnect.gpus[3].rates.reads);
  EXPECT_THAT(MachineOf(topology, 7).status().message(), testing::HasSubstr("7 ranks on 8 GPUs"));
}

TEST(MachineOfTest, RanksOnCoresAreSpreadEvenly) {
  Topology topology;
  topology.hosts = {{.name = "a", .cores = 4, .memory_bytes = 10}, {.name = "b", .cores = 2}};
  const Machine machine = *MachineOf(topology, 5);
  EXPECT_THAT(NodesOfRanks(machine), ElementsAre(0, 0, 0, 1, 1));
  EXPECT_THAT(machine.nodes, ElementsAre(Node{"a", 4, 10}, Node{"b", 2, 0}));
  EXPECT_EQ(machine.devices[0].kind, DeviceKind::kCpu);
  EXPECT_THAT(MachineOf(topology, 1).status().message(), testing::HasSubstr("1 rank on 2 hosts"));
}

}  // namespace
}  // namespace skein::topology
