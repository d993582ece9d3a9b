#include "coordinator/cluster/join_hosts.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/test_util.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "topology/presets/presets.h"

namespace skein::coordinator {
namespace {

using ::testing::HasSubstr;
using topology::Topology;

Topology Dgx1() {
  Topology topology = *topology::MakePreset("dgx-1v");
  topology.hosts[0].name = "a";
  for (size_t i = 0; i < 8; ++i) {
    topology.hosts[0].interconnect.gpus[i].bus_id = absl::StrCat("0000:0", i, ":00.0");
  }
  return topology;
}

// A job with some of the host's GPUs, named as its own ranks have them.
Topology Job(const std::vector<int>& gpus, bool tells_of_others = true) {
  Topology topology = Dgx1();
  topology::Host& host = topology.hosts[0];
  const topology::Interconnect all = host.interconnect;
  if (tells_of_others) host.whole = all;
  host.interconnect = {};
  for (const int a : gpus) {
    host.interconnect.gpus.push_back(all.gpus[a]);
    host.interconnect.gpus.back().name = absl::StrCat("GPU", host.interconnect.gpus.size() - 1);
    auto& row = host.interconnect.connections.emplace_back();
    for (const int b : gpus) row.push_back(all.connections[a][b]);
  }
  return topology;
}

TEST(JoinHostsTest, GpusOfSeveralJobsAreConnectedAsTheWholeHostIs) {
  Topology first = Job({0, 1}), second = Job({5});
  first.hosts[0].exchanges = {{topology::Exchange::kAllReduce, 2, false, {{1, {}}}}};
  topology::LinkRate& measured = second.hosts[0].links.back().second;
  measured = {topology::Origin::kMeasured, absl::Microseconds(3), 7e9};
  second.hosts[0].exchanges = {{topology::Exchange::kAllReduce, 4, false, {{1, {}}}}};
  SKEIN_ASSERT_OK_AND_ASSIGN(const Topology joined, JoinHosts({first, second}));
  ASSERT_EQ(joined.hosts.size(), 1u);
  const topology::Interconnect all = Dgx1().hosts[0].interconnect;
  const topology::Interconnect& of = joined.hosts[0].interconnect;
  ASSERT_EQ(of.gpus.size(), 3u);
  EXPECT_EQ(of.gpus[2].bus_id, all.gpus[5].bus_id);
  EXPECT_EQ(of.gpus[2].name, "GPU2");
  EXPECT_EQ(of.OfGpus(0, 1), all.OfGpus(0, 1));
  EXPECT_EQ(of.OfGpus(1, 2), all.OfGpus(1, 5));
  EXPECT_EQ(of.OfGpus(0, 2), all.OfGpus(0, 5));
  EXPECT_EQ(of.OfGpuAndNic(2, 3), all.OfGpuAndNic(5, 3));
  EXPECT_EQ(joined.hosts[0].exchanges.size(), 2u);
  EXPECT_EQ(joined.hosts[0].links.back().second, measured);
  EXPECT_EQ(joined.hosts[0].links.front(), first.hosts[0].links.front());
  EXPECT_EQ(joined.hosts[0].whole, topology::Interconnect{});
  SKEIN_EXPECT_OK(topology::CheckTopology(joined));
}

// By their addresses: each job counts its GPUs from 0.
TEST(JoinHostsTest, SlowPairsOfEachJobStayBetweenTheirGpus) {
  const topology::LinkRate slow = {topology::Origin::kMeasured, absl::Microseconds(9), 1e9};
  Topology first = Job({2, 7}), second = Job({0, 5});
  first.hosts[0].interconnect.slow_pairs = {{0, 1, slow}};
  second.hosts[0].interconnect.slow_pairs = {{0, 1, slow}};
  SKEIN_ASSERT_OK_AND_ASSIGN(const Topology joined, JoinHosts({first, second}));
  const std::vector<topology::SlowPair> both = {{0, 1, slow}, {2, 3, slow}};
  EXPECT_EQ(joined.hosts[0].interconnect.slow_pairs, both);
}

TEST(JoinHostsTest, RanksAreFoundByTheirGpusAddresses) {
  const Topology first = Job({2, 7}), second = Job({0, 5});
  SKEIN_ASSERT_OK_AND_ASSIGN(const Topology joined, JoinHosts({first, second}));
  EXPECT_EQ(PlaceInJoined(joined, first.hosts[0], 1), (JoinedPlace{0, 1}));
  EXPECT_EQ(PlaceInJoined(joined, second.hosts[0], 1), (JoinedPlace{0, 3}));
  EXPECT_EQ(PlaceInJoined(joined, second.hosts[0], -1), (JoinedPlace{0, -1}));
}

TEST(JoinHostsTest, OneThatHasAllIsTheWhole) {
  SKEIN_ASSERT_OK_AND_ASSIGN(const Topology joined,
                             JoinHosts({Job({3}, /*tells_of_others=*/false),
                                        Job({0, 1, 2, 3, 4, 5, 6, 7}, /*tells_of_others=*/false)}));
  EXPECT_EQ(joined.hosts[0].interconnect.gpus.size(), 8u);  // one is both jobs'
}

TEST(JoinHostsTest, WhatNobodyHasToldIsNotGuessedAt) {
  EXPECT_THAT(std::string(JoinHosts({Job({0}, false), Job({1}, false)}).status().message()),
              HasSubstr("several jobs have GPUs of a, and none has told"));
  Topology unknown = Job({0});
  unknown.hosts[0].interconnect.gpus[0].bus_id.clear();
  EXPECT_FALSE(JoinHosts({unknown, Job({1})}).ok());
}

}  // namespace
}  // namespace skein::coordinator
