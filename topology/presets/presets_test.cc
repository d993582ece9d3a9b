#include "topology/presets/presets.h"

#include <set>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "base/test_util.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace skein::topology {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Host HostOf(const std::string& name) {
  const absl::StatusOr<Topology> made = MakePreset(name);
  EXPECT_TRUE(made.ok()) << made.status();
  return made.ok() ? made->hosts.front() : Host{};
}

TEST(PresetsTest, AllAreSoundAndMarkedAsModelled) {
  std::set<std::string> names;
  for (const Preset& preset : Presets()) {
    EXPECT_TRUE(names.insert(preset.name).second);
    EXPECT_TRUE(IsPreset(preset.name));
    EXPECT_FALSE(preset.about.empty());
    for (const int32_t nodes : {1, 2, 128}) {
      const absl::StatusOr<Topology> made = MakePreset(preset.name, nodes);
      SKEIN_ASSERT_OK(made);
      SKEIN_EXPECT_OK(CheckTopology(*made));
      EXPECT_EQ(made->hosts.size(), static_cast<size_t>(nodes));
      EXPECT_EQ(made->fabric.link.bytes_per_s > 0, nodes > 1);
      for (const Gpu& gpu : made->hosts.back().interconnect.gpus) {
        EXPECT_EQ(gpu.rates.origin, Origin::kModelled);
      }
      for (const auto& [path, link] : made->hosts.back().links) {
        EXPECT_EQ(link.origin, Origin::kModelled);
      }
    }
  }
  EXPECT_THAT(names, ElementsAre("dgx-1v", "dgx-a100", "dgx-h100", "dgx-h200", "pcie-4",
                                 "pcie-4-bridged", "pcie-8"));
}

struct Expectation {
  std::string name;
  std::vector<std::vector<int>> islands;   // by NVLink
  std::vector<std::vector<int>> switches;  // GPUs that share one of PCIe
  std::vector<std::vector<int>> nics;      // nearest, by GPU
  std::vector<int> sockets;                // by GPU
  double island_bytes_per_s;               // NVLinks of GPU 0, each way
};

TEST(PresetsTest, GpusShareIslandsSwitchesAndNics) {
  const std::vector<std::vector<int>> all = {{0, 1, 2, 3, 4, 5, 6, 7}};
  const std::vector<std::vector<int>> pairs = {{0, 1}, {2, 3}, {4, 5}, {6, 7}};
  const std::vector<std::vector<int>> ones = {{0}, {1}, {2}, {3}, {4}, {5}, {6}, {7}};
  const std::vector<int> halves = {0, 0, 0, 0, 1, 1, 1, 1};
  const std::vector<Expectation> expectations = {
      // V100: 6 NVLinks of 25 GB/s each.
      {"dgx-1v",
       {{0, 1, 2, 3}, {4, 5, 6, 7}},
       {},
       {{0}, {0}, {1}, {1}, {2}, {2}, {3}, {3}},
       halves,
       150e9},
      // 600 and 900 GB/s of NVLink in both directions, as datasheets say.
      {"dgx-a100",
       all,
       {},
       {{0, 1}, {0, 1}, {2, 3}, {2, 3}, {4, 5}, {4, 5}, {6, 7}, {6, 7}},
       halves,
       300e9},
      {"dgx-h100", all, {}, ones, halves, 450e9},
      {"dgx-h200", all, {}, ones, halves, 450e9},
      {"pcie-4", {{0}, {1}, {2}, {3}}, {{0}, {1}, {2}, {3}}, {{0}, {0}, {0}, {0}}, {0, 0, 1, 1}, 0},
      {"pcie-8", ones, pairs, {{0}, {0}, {0}, {0}, {1}, {1}, {1}, {1}}, halves, 0},
      {"pcie-4-bridged",
       {{0, 1}, {2, 3}},
       {{0}, {1}, {2}, {3}},
       {{0}, {0}, {0}, {0}},
       {0, 0, 1, 1},
       300e9},
  };
  for (const Expectation& expected : expectations) {
    SCOPED_TRACE(expected.name);
    const Host host = HostOf(expected.name);
    const Interconnect& of = host.interconnect;
    EXPECT_EQ(Islands(of), expected.islands);
    std::vector<std::vector<int>> nics;
    std::vector<int> sockets;
    for (size_t gpu = 0; gpu < of.gpus.size(); ++gpu) {
      nics.push_back(NearestNics(of, static_cast<int>(gpu)));
      sockets.push_back(of.gpus[gpu].numa_node);
      EXPECT_EQ(of.gpus[gpu].cpus, host.numa_nodes[sockets.back()].cpus);
    }
    EXPECT_EQ(nics, expected.nics);
    EXPECT_EQ(sockets, expected.sockets);
    Interconnect pcie = of;
    for (auto& row : pcie.connections) {
      for (Connection& connection : row) {
        if (connection.path == Path::kNvlink) connection = {Path::kSystem};
      }
    }
    // NVLink hides what PCIe has.
    if (!expected.switches.empty()) EXPECT_EQ(Islands(pcie, Path::kSwitch), expected.switches);
    double most = 0;
    for (const Connection& connection : of.connections[0]) {
      most = of.nvswitches > 0 ? std::max<double>(most, connection.nvlinks)
                               : most + connection.nvlinks;
    }
    EXPECT_EQ(most * (most > 0 ? host.links[0].second.bytes_per_s : 0),
              expected.island_bytes_per_s);
  }
}

// NVIDIA's description of the DGX-1: each V100 has 6 NVLinks.
TEST(PresetsTest, EachGpuOfACubeMeshHasSixLinks) {
  const Interconnect of = HostOf("dgx-1v").interconnect;
  for (const auto& row : of.connections) {
    int links = 0;
    for (const Connection& connection : row) links += connection.nvlinks;
    EXPECT_EQ(links, &row - of.connections.data() < 8 ? 6 : 0);
  }
}

TEST(PresetsTest, NodesAndFabrics) {
  const absl::StatusOr<Topology> made = MakePreset("dgx-h100", 2, "ethernet-25g");
  SKEIN_ASSERT_OK(made);
  EXPECT_EQ(made->hosts[1].name, "node1");
  EXPECT_EQ(made->fabric.link.bytes_per_s, 25e9 / 8);
  const absl::StatusOr<Topology> own = MakePreset("dgx-h100", 2);
  SKEIN_ASSERT_OK(own);
  EXPECT_EQ(own->fabric.name, "InfiniBand NDR");
  EXPECT_FALSE(MakePreset("dgx-h100", 1, "string").ok());  // whether or not it is used
  EXPECT_THAT(std::string(MakePreset("dgx-h1000").status().message()),
              HasSubstr("there are: dgx-1v, dgx-a100"));
  EXPECT_THAT(std::string(MakePreset("pcie-4", 2, "token-ring").status().message()),
              HasSubstr("there are: ib-edr"));
  EXPECT_EQ(MakePreset("pcie-4", 0).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(MakePreset("pcie-4", kMaxHosts + 1).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(PresetsTest, WhatNobodyMeasuredIsAssumed) {
  Topology topology = *MakePreset("pcie-4");
  Host& host = topology.hosts[0];
  const Interconnect of = host.interconnect;
  host.links.clear();
  for (Gpu& gpu : host.interconnect.gpus) gpu.rates = {};
  host.interconnect.gpus[1].rates.reads = {{1, 2, 3}};
  host.interconnect.gpus[1].rates.products = {{DType::kBF16, 0, 1, 4}};
  AssumeFigures(topology);
  EXPECT_EQ(host.interconnect.gpus[0].rates, of.gpus[0].rates);  // of its name
  EXPECT_EQ(host.interconnect.gpus[1].rates.reads, (std::vector<ReadRate>{{1, 2, 3}}));
  EXPECT_FALSE(host.links.empty());
  // Each card by its own name.
  Topology mixed = *MakePreset("pcie-4");
  std::vector<Gpu>& cards = mixed.hosts[0].interconnect.gpus;
  for (Gpu& gpu : cards) gpu = {.name = gpu.name, .model = "NVIDIA L40S"};
  const Gpu h100 = MakePreset("dgx-h100")->hosts[0].interconnect.gpus[0];
  cards[2].model = h100.model;
  AssumeFigures(mixed);
  EXPECT_EQ(cards[0].rates, of.gpus[0].rates);
  EXPECT_EQ(cards[2].rates, h100.rates);
  EXPECT_EQ(cards[2].memory_bytes, h100.memory_bytes);
  // Of a name that nobody knows: something.
  for (Gpu& gpu : host.interconnect.gpus) gpu = {.name = gpu.name, .model = "a card"};
  AssumeFigures(topology);
  EXPECT_FALSE(host.interconnect.gpus[0].rates.reads.empty());
  SKEIN_EXPECT_OK(CheckTopology(topology));
  // Half of what plans need is none of it.
  const DeviceRates assumed = host.interconnect.gpus[0].rates;
  host.interconnect.gpus[0].rates.products.clear();
  AssumeFigures(topology);
  EXPECT_EQ(host.interconnect.gpus[0].rates, assumed);
  Topology half{.hosts = {{.name = "a", .cores = 2}}};
  half.hosts[0].core_rates.reads = {{1 << 20, 1e9, 1e9}};
  AssumeFigures(half);
  EXPECT_FALSE(half.hosts[0].core_rates.products.empty());
  // Cores keep what was measured of them.
  Topology cores{.hosts = {{.name = "a", .cores = 2}, {.name = "b", .cores = 2}}};
  cores.hosts[0].links = {{Path::kSelf, {.bytes_per_s = 7}}};
  AssumeFigures(cores);
  EXPECT_EQ(cores.hosts[0].links[0].second.bytes_per_s, 7);
  EXPECT_EQ(cores.hosts[0].core_rates, cores.hosts[1].core_rates);
  SKEIN_EXPECT_OK(CheckTopology(cores));
}

}  // namespace
}  // namespace skein::topology
