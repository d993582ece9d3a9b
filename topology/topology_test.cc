#include "topology/topology.h"

#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "base/test_util.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace skein::topology {
namespace {

using ::testing::HasSubstr;

// Two GPUs and a NIC on each of two hosts.
Topology Two() {
  Topology topology;
  for (const char* name : {"alpha", "beta"}) {
    Host host{.name = name, .cores = 8, .memory_bytes = 1 << 30};
    host.interconnect.gpus = {{.name = "GPU0"}, {.name = "GPU1"}};
    host.interconnect.nics = {{.name = "NIC0", .bytes_per_s = 50e9}};
    const Connection self, nvlink{Path::kNvlink, 18}, near{Path::kSwitch}, far{Path::kSystem};
    host.interconnect.connections = {{self, nvlink, near}, {nvlink, self, far}, {near, far, self}};
    for (Gpu& gpu : host.interconnect.gpus) {
      gpu.rates.reads = {{1 << 20, 8e12, 8e12}, {1 << 30, 4e12, 4e12}};
      gpu.rates.products = {{DType::kBF16, 0, 1, 4e12}, {DType::kBF16, 0, 512, 7e14}};
    }
    host.links = {{Path::kNvlink, {.bytes_per_s = 25e9}}, {Path::kSystem, {.bytes_per_s = 1e10}}};
    host.exchanges = {{.times = {{0, absl::Microseconds(3)}, {1024, absl::Microseconds(4)}}}};
    topology.hosts.push_back(host);
  }
  topology.fabric = {"InfiniBand", {.latency = absl::Microseconds(2), .bytes_per_s = 50e9}};
  return topology;
}

TEST(TopologyTest, WhatIsWholeIsAccepted) { SKEIN_EXPECT_OK(CheckTopology(Two())); }

TEST(TopologyTest, HostsAreAlikeButForTheirNames) {
  Topology topology = Two();
  EXPECT_TRUE(AlikeButForName(topology.hosts[0], topology.hosts[1]));
  topology.hosts[1].interconnect.gpus[1].rates.overheads = {{1, absl::Microseconds(1)}};
  EXPECT_FALSE(AlikeButForName(topology.hosts[0], topology.hosts[1]));
}

struct Fault {
  std::string says;
  std::function<void(Topology&)> make;
};

TEST(TopologyTest, WhatIsNotIsRefusedByItsPlace) {
  constexpr double kInfinite = std::numeric_limits<double>::infinity();
  const std::vector<Fault> faults = {
      {"hosts: 0 of them", [](Topology& t) { t.hosts.clear(); }},
      {"hosts[1]: another host is called alpha", [](Topology& t) { t.hosts[1].name = "alpha"; }},
      {"hosts[0]: -1 cores", [](Topology& t) { t.hosts[0].cores = -1; }},
      {"hosts[0]: 8193 cores", [](Topology& t) { t.hosts[0].cores = 8193; }},
      {"hosts[0].whole: connections of 1 devices, where 0 are",
       [](Topology& t) { t.hosts[0].whole.connections.resize(1); }},
      {"hosts[0]: -1 is no amount", [](Topology& t) { t.hosts[0].memory_bytes = -1; }},
      {"interconnect.gpus[1].memory_bytes: -5 is",
       [](Topology& t) { t.hosts[0].interconnect.gpus[1].memory_bytes = -5; }},
      {"interconnect: connections of 2 devices, where 3 are",
       [](Topology& t) { t.hosts[0].interconnect.connections.pop_back(); }},
      {"connections[1]: it leads to 2",
       [](Topology& t) { t.hosts[0].interconnect.connections[1].pop_back(); }},
      {"connections[1][0]: it is PXB, and NV18 the other way",
       [](Topology& t) { t.hosts[0].interconnect.connections[1][0] = {Path::kSwitches}; }},
      {"connections[0][1]: X stands for a device and itself",
       [](Topology& t) { t.hosts[0].interconnect.connections[0][1] = {}; }},
      {"connections[0][1]: 0 NVLinks over NV",
       [](Topology& t) { t.hosts[0].interconnect.connections[0][1].nvlinks = 0; }},
      {"gpus[0].rates.reads[1]: a working set of 5",
       [](Topology& t) { t.hosts[0].interconnect.gpus[0].rates.reads[1].working_set_bytes = 5; }},
      {"gpus[0].rates.reads[0]: inf is no amount",
       [](Topology& t) {
         t.hosts[0].interconnect.gpus[0].rates.reads[0].alone_bytes_per_s = kInfinite;
       }},
      {"gpus[0].rates.reads[1]: -1 is no amount",
       [](Topology& t) { t.hosts[0].interconnect.gpus[0].rates.reads[1].behind_bytes_per_s = -1; }},
      {"gpus[0].rates.reads[1]: missed_again is 1.5, which is no share",
       [](Topology& t) { t.hosts[0].interconnect.gpus[0].rates.reads[1].missed_again = 1.5; }},
      {"gpus[0].rates.reads[0]: missed_again is nan",
       [](Topology& t) {
         t.hosts[0].interconnect.gpus[0].rates.reads[0].missed_again = std::nan("");
       }},
      {"gpus[0].rates.products[0]: a rate of 0",
       [](Topology& t) { t.hosts[0].interconnect.gpus[0].rates.products[0].operations_per_s = 0; }},
      {"gpus[0].rates.products[1]: 1 rows are not more than the 1",
       [](Topology& t) { t.hosts[0].interconnect.gpus[0].rates.products[1].rows = 1; }},
      {"gpus[0].rates.overheads[1]: 8 rows are not more than 8",
       [](Topology& t) { t.hosts[0].interconnect.gpus[0].rates.overheads = {{8}, {8}}; }},
      {"gpus[0].rates.attention[1]: 8 rows are not more than the 8",
       [](Topology& t) {
         t.hosts[0].interconnect.gpus[0].rates.attention = {{8, 1, 1}, {8, 1, 1}};
       }},
      {"gpus[0].rates.attention[1]: a working set of 5 bytes, which is not more than 6",
       [](Topology& t) {
         t.hosts[0].interconnect.gpus[0].rates.attention = {{8, 1, 1, 6}, {8, 1, 1, 5}};
       }},
      {"gpus[0].rates.attention[0]: 0 rows are none",
       [](Topology& t) { t.hosts[0].interconnect.gpus[0].rates.attention = {{0, 1, 1}}; }},
      {"gpus[0].rates.attention[0]: a rate of 0 never ends",
       [](Topology& t) { t.hosts[0].interconnect.gpus[0].rates.attention = {{8, 0, 1}}; }},
      {"gpus[0].rates.overheads[0].layer: -1us is no time",
       [](Topology& t) {
         t.hosts[0].interconnect.gpus[0].rates.overheads = {{1, {}, absl::Microseconds(-1)}};
       }},
      {"gpus[0].rates.passed_values_per_s: -1 is",
       [](Topology& t) { t.hosts[0].interconnect.gpus[0].rates.passed_values_per_s = -1; }},
      {"nics[0].bytes_per_s: inf",
       [](Topology& t) { t.hosts[0].interconnect.nics[0].bytes_per_s = kInfinite; }},
      {"links[1]: paths go from", [](Topology& t) { t.hosts[1].links[1].first = Path::kNvlink; }},
      {"links[0].latency: -1us is no time",
       [](Topology& t) { t.hosts[1].links[0].second.latency = absl::Microseconds(-1); }},
      {"slow_pairs[0]: GPUs 0 and 2 of 2",
       [](Topology& t) { t.hosts[0].interconnect.slow_pairs = {{0, 2, {.bytes_per_s = 1}}}; }},
      {"slow_pairs[0]: GPUs 1 and 0 of 2",
       [](Topology& t) { t.hosts[0].interconnect.slow_pairs = {{1, 0, {.bytes_per_s = 1}}}; }},
      {"slow_pairs[1]: GPUs 0 and 1 of 2: pairs go up",
       [](Topology& t) {
         t.hosts[0].interconnect.slow_pairs = {{0, 1, {.bytes_per_s = 1}},
                                               {0, 1, {.bytes_per_s = 1}}};
       }},
      {"slow_pairs[0]: it carries nothing",
       [](Topology& t) { t.hosts[0].interconnect.slow_pairs = {{0, 1, {}}}; }},
      {"links[0].spread: -1 is", [](Topology& t) { t.hosts[1].links[0].second.spread = -1; }},
      {"exchanges[0]: 2 ranks, 3 of a host",
       [](Topology& t) { t.hosts[1].exchanges[0].ranks_per_host = 3; }},
      {"exchanges[0]: 2 ranks, 2 of a host",  // of one host all are
       [](Topology& t) { t.hosts[1].exchanges[0].ranks_per_host = 2; }},
      {"exchanges[0]: an exchange of 1", [](Topology& t) { t.hosts[1].exchanges[0].ranks = 1; }},
      {"exchanges[0].times[1]: its bytes",
       [](Topology& t) { t.hosts[1].exchanges[0].times[1].bytes = 0; }},
  };
  for (const Fault& fault : faults) {
    Topology topology = Two();
    fault.make(topology);
    const absl::Status status = CheckTopology(topology);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << fault.says;
    EXPECT_THAT(std::string(status.message()), HasSubstr(fault.says));
  }
}

}  // namespace
}  // namespace skein::topology
