#include "proto/convert/machines.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "base/test_util.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/convert/machines_json.h"
#include "topology/presets/presets.h"

namespace skein::convert {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// With something in every field.
topology::Topology Full() {
  topology::Topology topology = *topology::MakePreset("dgx-1v", 2);
  topology::Host& host = topology.hosts[1];
  host.l2_bytes = 1 << 20;
  host.l3_bytes = 1 << 25;
  host.core_rates = {
      topology::Origin::kMeasured,
      {{1 << 20, 2e10, 1e10, 4e9, 0.75}, {1 << 30, 1e10, 5e9}},
      {{DType::kF32, 1 << 20, 1, 3e10}, {DType::kF32, 0, 1, 1e10}, {DType::kF32, 0, 64, 2e10}},
      {{1, absl::Microseconds(12), absl::Microseconds(3)},
       {64, absl::Microseconds(80), absl::Microseconds(9)}},
      0.0625,
      {{1, 2e9, 3e9, 1 << 20}, {8, 4e9, 6e9, 1 << 21}},
      7e9};
  host.interconnect.gpus[0].to_host = {topology::Origin::kMeasured, absl::Microseconds(9), 5e10,
                                       0.03};
  host.interconnect.slow_pairs = {
      {1, 2, {topology::Origin::kMeasured, absl::Microseconds(19), 5e8, 0.25}}};
  host.links[0].second.spread = 0.125;
  using topology::Exchange;
  host.exchanges = {
      {Exchange::kAllReduce, 4, true, {{1024, absl::Microseconds(90)}}, 0.5, false, 2},
      {Exchange::kAllReduce, 2, false, {{1024, absl::Microseconds(9)}}, 0.25, /*alone=*/true},
      {Exchange::kAllGather, 4, true, {{1024, absl::Microseconds(40)}}},
      {Exchange::kSendReceive, 2, false, {{1, absl::Nanoseconds(1500)}}},
      {Exchange::kSendToAwake, 2, false, {{1, absl::Nanoseconds(500)}}},
      {Exchange::kTokenReturn, 2, false, {{4, absl::Microseconds(70)}}}};
  host.interconnect.gpus[0].bus_id = "0000:06:00.0";
  host.interconnect.nics[0].device = "mlx5_0";
  host.interconnect.nics[0].bus_id = "0000:05:00.0";
  host.whole = host.interconnect;
  return topology;
}

TEST(MachinesTest, ComesBackAsItWas) {
  for (const topology::Topology& topology :
       {Full(), *topology::MakePreset("pcie-4"), *topology::MakePreset("dgx-h100", 128)}) {
    const absl::StatusOr<topology::Topology> read = TopologyFromJson(TopologyToJson(topology));
    SKEIN_ASSERT_OK(read);
    EXPECT_EQ(*read, topology);
  }
}

TEST(MachinesTest, AlikeHostsAreWrittenOnce) {
  const std::string one = TopologyToJson(*topology::MakePreset("dgx-h100"));
  const std::string many = TopologyToJson(*topology::MakePreset("dgx-h100", 1024));
  EXPECT_LT(many.size(), one.size() + 500);
  EXPECT_THAT(many, HasSubstr("\"count\": 1024"));
  EXPECT_EQ(ToProto(Full()).hosts_size(), 2);
}

TEST(MachinesTest, ByHand) {
  const absl::StatusOr<topology::Topology> read = TopologyFromJson(R"({
    "hosts": [{
      "name": "box", "cores": 8, "memory_bytes": 1e9,
      "interconnect": {
        "gpus": [{"name": "GPU0", "cpus": "0-3"}, {"name": "GPU1", "numa_node": 1}],
        "connections": [{"to": ["X", "NV4"]}, {"to": ["NV4", "X"]}]
      },
      "links": [{"path": "NV", "bytes_per_s": 25e9, "latency_us": 2}]
    }]
  })");
  SKEIN_ASSERT_OK(read);
  const topology::Host& host = read->hosts.at(0);
  EXPECT_EQ(host.memory_bytes, 1000000000);
  EXPECT_EQ(host.interconnect.gpus[0].cpus, (topology::Cpus{0, 1, 2, 3}));
  EXPECT_EQ(host.interconnect.connections[0][1],
            (topology::Connection{topology::Path::kNvlink, 4}));
  EXPECT_EQ(host.links[0].second.latency, absl::Microseconds(2));
}

// As formats leave out what they do not tell.
TEST(MachinesTest, WhatIsNotToldMayBeMissing) {
  topology::Topology topology;
  topology.hosts.resize(1);
  EXPECT_EQ(*TopologyFromJson(TopologyToJson(topology)), topology);
  topology.hosts = {{.name = "node0"}, {.name = "node1"}};
  EXPECT_EQ(*TopologyFromJson(TopologyToJson(topology)), topology);
}

TEST(MachinesTest, LongNamesWithNumbersComeBack) {
  const std::string json = absl::StrCat(R"({"hosts": [{"name": ")", std::string(300, 'x'),
                                        R"(", "count": 2}, {"name": "b"}]})");
  SKEIN_ASSERT_OK_AND_ASSIGN(const topology::Topology read, TopologyFromJson(json));
  SKEIN_ASSERT_OK_AND_ASSIGN(const topology::Topology again,
                             TopologyFromJson(TopologyToJson(read)));
  EXPECT_EQ(again, read);
}

// As long as names may be, and alike but for their numbers.
TEST(MachinesTest, LongestNamesComeBackApart) {
  topology::Topology topology = *topology::MakePreset("pcie-4", 2);
  for (size_t i = 0; i < 2; ++i) {
    topology.hosts[i].name = absl::StrCat(std::string(255, 'x'), i);
  }
  SKEIN_ASSERT_OK_AND_ASSIGN(const topology::Topology read,
                             TopologyFromJson(TopologyToJson(topology)));
  EXPECT_EQ(read, topology);
}

TEST(MachinesTest, NamesAreFitForTerminals) {
  topology::Topology topology = Full();
  const std::string evil = "a\x1b]0;b\x07\n";
  topology.name = topology.fabric.name = evil;
  topology::Host& host = topology.hosts[0];
  host.name = host.cpu = evil;
  topology::Gpu& gpu = host.interconnect.gpus[0];
  gpu.name = gpu.model = gpu.bus_id = evil;
  topology::Nic& nic = host.interconnect.nics[0];
  nic.name = nic.device = nic.bus_id = evil;
  SKEIN_ASSERT_OK_AND_ASSIGN(const topology::Topology read,
                             TopologyFromJson(TopologyToJson(topology)));
  const topology::Host& from = read.hosts[0];
  for (const std::string& name :
       {read.name, read.fabric.name, from.name, from.cpu, from.interconnect.gpus[0].name,
        from.interconnect.gpus[0].model, from.interconnect.gpus[0].bus_id,
        from.interconnect.nics[0].name, from.interconnect.nics[0].device,
        from.interconnect.nics[0].bus_id}) {
    EXPECT_EQ(name, "a\\x1b]0;b\\x07\\x0a");
  }
}

TEST(MachinesTest, WhatIsWrongIsNamed) {
  const std::string good = TopologyToJson(Full());
  const auto with = [&good](const std::string& from, const std::string& to) {
    EXPECT_THAT(good, HasSubstr(from));
    return absl::StrReplaceAll(good, {{from, to}});
  };
  struct Fault {
    std::string json, says;
  };
  const std::vector<Fault> faults = {
      {"", "line 1, column 1"},
      {"{\n  \"hosts\": [}\n", "line 2, column 13"},
      {"[]", ""},
      {R"({"name": "a", "name": "b"})", "key 'name' appears twice"},
      {std::string("{}\0", 3), "a zero byte"},
      {"{}", "hosts: 0 of them"},
      {"\xff", "line 1, column 1"},
      {absl::StrCat(std::string(100, '['), std::string(100, ']')), "nested deeper than 16 levels"},
      {std::string(kMaxTopologyBytes + 1, ' '), "16777216 bytes"},
      {with("\"sockets\"", "\"socket\""), "(hosts[1]) socket: "},
      {with("\"sockets\": 2", "\"sockets\": \"two\""), "sockets"},
      {with("\"sockets\": 2", "\"sockets\": -2"), "hosts[0]: -2 is no amount"},
      {with("\"SYS\"", "\"NVX\""), "hosts[0]: connections[0][5]: 'NVX' is not known"},
      {with("\"NV2\"", "\"NV\""), "0 NVLinks over NV"},
      {with("\"NV2\"", "\"NV99999999999\""), "'NV99999999999' is not known"},
      {with("\"measured\"", "\"guessed\""), "hosts[1]: gpus[0]: origin: 'guessed' is not known"},
      {with("\"F32\"", "\"F99\""), "hosts[1]: products: "},
      {with("\"all_gather\"", "\"gossip\""), "exchanges[2].exchange: 'gossip'"},
      {with("\"infiniband\"", "\"pigeon\""), "hosts[0]: nics[0].kind: 'pigeon'"},
      {with("\"0-19\"", "\"0-\""), "'0-' is no list of processors"},
      {with("\"node1\"", "\"node0\""), "another host is called node0"},
      {R"({"hosts": [{"name": "a", "cores": 1, "count": 1025}]})", "hosts[0].count: 1025"},
      {"{\"hosts\": [\n{\"name\": \"a\",\n\"cores\": 1,\n\"count\": 1025}]}",
       "line 4: hosts[0].count: 1025"},
      {"{\"hosts\": [\n{\"name\": \"a\",\n\"core\": 1}]}", "line 3: (hosts[0]) core: "},
      {"{\"hosts\": [\n{\"name\": \"a\",\n\"cores\": 8193}]}", "line 2: hosts[0]: 8193 cores"},
      {R"({"hosts": [{"name": "a", "cores": 8193}]})", "hosts[0]: 8193 cores; at most 8192"},
      {absl::StrCat(R"({"hosts": [{"name": "a", "count": 1024, "numa_nodes": [)",
                    absl::StrJoin(std::vector<std::string>(3, R"({"cpus": "0-8191"})"), ","),
                    "]}]}"),
       "hosts[0]: this comes to more than 64.0 MiB"},
      {absl::StrCat(R"({"hosts": [{"name": "a", "numa_nodes": [)",
                    absl::StrJoin(std::vector<std::string>(3000, R"({"cpus": "0-8191"})"), ","),
                    "]}]}"),
       "hosts[0]: this comes to more than 64.0 MiB"},
      {R"({"hosts": [{"name": "a", "cores": 1, "links": [{"path": "NV", "latency_us": 1e300}]}]})",
       "links[0].latency"},
  };
  for (const Fault& fault : faults) {
    const absl::StatusOr<topology::Topology> read = TopologyFromJson(fault.json);
    EXPECT_EQ(read.status().code(), absl::StatusCode::kInvalidArgument) << fault.says;
    EXPECT_THAT(std::string(read.status().message()), HasSubstr(fault.says));
    EXPECT_THAT(std::string(read.status().message()), Not(HasSubstr("\n")));
  }
}

}  // namespace
}  // namespace skein::convert
