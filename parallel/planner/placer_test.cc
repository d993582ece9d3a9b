#include "parallel/planner/placer.h"

#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "parallel/planner/placement.h"
#include "topology/presets/presets.h"

namespace skein::plan {
namespace {

using cost::Site;
using topology::Topology;

std::vector<Group> Groups(const Topology& topology, int32_t core_ranks, int32_t size) {
  return Placer(topology).TensorGroups(SitesOfHosts(topology, core_ranks), size);
}

std::vector<std::vector<int>> GpusOf(const std::vector<Group>& groups) {
  std::vector<std::vector<int>> gpus;
  for (const Group& group : groups) {
    std::vector<int>& of = gpus.emplace_back();
    for (const Site& site : group) of.push_back(site.gpu);
  }
  return gpus;
}

TEST(PlacerTest, ShardsAreNextToEachOther) {
  struct Case {
    std::string preset;
    int32_t size;
    std::vector<std::vector<int>> groups;
  };
  const std::vector<Case> cases = {
      // Two NVLinks rather than one.
      {"dgx-1v", 2, {{0, 3}, {1, 2}, {4, 7}, {5, 6}}},
      {"dgx-1v", 4, {{0, 1, 2, 3}, {4, 5, 6, 7}}},
      {"dgx-1v", 8, {{0, 1, 2, 3, 4, 5, 6, 7}}},
      {"dgx-1v", 3, {{0, 1, 2}, {4, 5, 6}}},
      {"dgx-h100", 4, {{0, 1, 2, 3}, {4, 5, 6, 7}}},
      {"dgx-h100", 3, {{0, 1, 2}, {3, 4, 5}}},
      {"pcie-4-bridged", 2, {{0, 1}, {2, 3}}},
      {"pcie-8", 2, {{0, 1}, {2, 3}, {4, 5}, {6, 7}}},
      {"pcie-8", 4, {{0, 1, 2, 3}, {4, 5, 6, 7}}},
      {"pcie-4", 5, {}},
  };
  for (const Case& c : cases) {
    EXPECT_EQ(GpusOf(Groups(*topology::MakePreset(c.preset), 0, c.size)), c.groups)
        << c.preset << " " << c.size;
  }
}

TEST(PlacerTest, UnlikeCardsAreNotInAGroupWhereAlikeOnesAre) {
  Topology mixed = *topology::MakePreset("dgx-h100");
  mixed.hosts[0].interconnect.gpus[1].model = "another";
  mixed.hosts[0].interconnect.gpus[3].model = "another";
  const auto groups = GpusOf(Groups(mixed, 0, 2));
  EXPECT_EQ(groups, (std::vector<std::vector<int>>{{0, 2}, {1, 3}, {4, 5}, {6, 7}}));
}

// One mixed group cannot be helped; the others still have two NVLinks.
TEST(PlacerTest, AnUnlikeCardLeavesTheOthersTheirLinks) {
  Topology mixed = *topology::MakePreset("dgx-1v");
  mixed.hosts[0].interconnect.gpus[7].model = "another";
  int wide = 0;
  for (const std::vector<int>& pair : GpusOf(Groups(mixed, 0, 2))) {
    wide += mixed.hosts[0].interconnect.OfGpus(pair[0], pair[1]).nvlinks == 2;
  }
  EXPECT_GE(wide, 3);
}

TEST(PlacerTest, GroupsGoOverHostsOnlyWhereNoHostHasSoMany) {
  const Topology two = *topology::MakePreset("pcie-4", 2);
  const std::vector<Group> wide = Groups(two, 0, 8);
  ASSERT_EQ(wide.size(), 1U);
  EXPECT_EQ(wide[0].back(), (Site{1, 3}));
  EXPECT_EQ(Groups(two, 0, 3).size(), 2U);  // one GPU of each host is left
}

TEST(PlacerTest, CoresAreSitesToo) {
  Topology box;
  box.hosts = {{.name = "a", .cores = 2}, {.name = "b", .cores = 2}};
  const std::vector<Group> groups = Groups(box, 2, 2);
  ASSERT_EQ(groups.size(), 2U);
  EXPECT_EQ(groups[1], (Group{{1, -1}, {1, -1}}));
}

TEST(PlacerTest, ReplicasStayOnAHostWhileItHasGroups) {
  const Topology two = *topology::MakePreset("pcie-8", 2);
  Placer placer(two);
  const std::vector<Group> groups = Groups(two, 0, 2);  // four of each host
  const auto three = placer.Replicas(groups, 3);
  ASSERT_EQ(three.size(), 2U);
  for (const auto& replica : three) EXPECT_EQ(replica[0][0].host, replica[2][0].host);
  EXPECT_EQ(placer.Replicas(groups, 2).size(), 4U);
  // Four single groups are left of each host: three and one of the other make one.
  const auto six = placer.Replicas(Groups(two, 0, 1), 6);
  EXPECT_EQ(six.size(), 2U);
  const auto five = placer.Replicas(Groups(two, 0, 1), 5);
  ASSERT_EQ(five.size(), 3U);
  EXPECT_NE(five[2].front()[0].host, five[2].back()[0].host);
  std::set<std::pair<int, int>> used;
  for (const auto& replica : five) {
    for (const Group& group : replica)
      EXPECT_TRUE(used.insert({group[0].host, group[0].gpu}).second);
  }
  EXPECT_TRUE(placer.Replicas(groups, 9).empty());
}

// A pipeline leaves a host once.
TEST(PlacerTest, StagesOfAHostFollowEachOther) {
  for (const int hosts : {2, 3}) {
    const Topology topology = *topology::MakePreset("pcie-8", hosts);
    Placer placer(topology);
    const auto replicas = placer.Replicas(Groups(topology, 0, 1), 8 * hosts);
    ASSERT_EQ(replicas.size(), 1U);
    int changes = 0;
    for (size_t i = 1; i < replicas[0].size(); ++i) {
      changes += replicas[0][i - 1][0].host != replicas[0][i][0].host ? 1 : 0;
    }
    EXPECT_EQ(changes, hosts - 1);
  }
}

// A cube mesh has two NVLinks along some edges, one along others, and none between most GPUs.
TEST(PlacerTest, StagesFollowTheWidestLinks) {
  const Topology cube = *topology::MakePreset("dgx-1v");
  Placer placer(cube);
  const std::vector<Group> singles = Groups(cube, 0, 1);
  EXPECT_EQ(placer.Replicas(singles, 2).size(), 4U);
  for (const auto& replica : placer.Replicas(singles, 2)) {
    const auto gpus = GpusOf(replica);
    EXPECT_EQ(cube.hosts[0].interconnect.OfGpus(gpus[0][0], gpus[1][0]).nvlinks, 2);
  }
  const auto all = placer.Replicas(singles, 8);
  ASSERT_EQ(all.size(), 1U);
  for (size_t i = 1; i < 8; ++i) {
    const int from = all[0][i - 1][0].gpu, to = all[0][i][0].gpu;
    EXPECT_GT(cube.hosts[0].interconnect.OfGpus(from, to).nvlinks, 0) << from << " " << to;
  }
  // Shards that face each other across the cube.
  const auto two = placer.Replicas(Groups(cube, 0, 4), 2);
  ASSERT_EQ(two.size(), 1U);
  EXPECT_EQ(GpusOf(two[0]), (std::vector<std::vector<int>>{{0, 1, 2, 3}, {4, 5, 6, 7}}));
}

// What a probe found to be slow.
TEST(PlacerTest, SlowPairsAreNotNeighbours) {
  Topology dgx = *topology::MakePreset("dgx-h100");
  dgx.hosts[0].interconnect.slow_pairs = {{0, 1, {.bytes_per_s = 1e10}}};
  EXPECT_EQ(GpusOf(Groups(dgx, 0, 2)),
            (std::vector<std::vector<int>>{{0, 2}, {1, 3}, {4, 5}, {6, 7}}));
  Placer placer(dgx);
  const auto eight = placer.Replicas(Groups(dgx, 0, 1), 8);
  ASSERT_EQ(eight.size(), 1U);
  for (size_t i = 1; i < 8; ++i) {
    EXPECT_NE(eight[0][i - 1][0].gpu + eight[0][i][0].gpu, 1);  // of GPUs 0 and 1
  }
}

// A host of more GPUs than are searched.
TEST(PlacerTest, ManyGpusAreTakenByTheirNearest) {
  Topology big = *topology::MakePreset("pcie-8");
  topology::Interconnect& of = big.hosts[0].interconnect;
  of.nics.clear();
  of.gpus.resize(12, of.gpus.front());
  of.connections.assign(12, std::vector<topology::Connection>(12, {topology::Path::kSystem}));
  for (int gpu = 0; gpu < 12; ++gpu) {
    of.connections[gpu][gpu] = {};
    of.connections[gpu][(gpu + 6) % 12] = {topology::Path::kSwitch};
  }
  EXPECT_EQ(GpusOf(Groups(big, 0, 2)),
            (std::vector<std::vector<int>>{{0, 6}, {1, 7}, {2, 8}, {3, 9}, {4, 10}, {5, 11}}));
  of.connections[0][5] = of.connections[5][0] = {topology::Path::kSwitch};
  of.slow_pairs = {{0, 6, {.bytes_per_s = 1e9}}};
  EXPECT_EQ(GpusOf(Groups(big, 0, 2)).front(), (std::vector<int>{0, 5}));
}

}  // namespace
}  // namespace skein::plan
