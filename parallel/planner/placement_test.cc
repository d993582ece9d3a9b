#include "parallel/planner/placement.h"

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "topology/presets/presets.h"

namespace skein::plan {
namespace {

using cost::Site;
using topology::Topology;

std::vector<Group> Groups(const Topology& topology, int32_t core_ranks, int32_t size) {
  return TensorGroups(topology, SitesOfHosts(topology, core_ranks), size);
}

std::vector<std::vector<int>> GpusOf(const std::vector<Group>& groups) {
  std::vector<std::vector<int>> gpus;
  for (const Group& group : groups) {
    std::vector<int>& of = gpus.emplace_back();
    for (const Site& site : group) of.push_back(site.gpu);
  }
  return gpus;
}

TEST(PlacementTest, ShardsAreNextToEachOther) {
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

TEST(PlacementTest, UnlikeCardsAreNotInAGroupWhereAlikeOnesAre) {
  Topology mixed = *topology::MakePreset("dgx-h100");
  mixed.hosts[0].interconnect.gpus[1].model = "another";
  mixed.hosts[0].interconnect.gpus[3].model = "another";
  const auto groups = GpusOf(Groups(mixed, 0, 2));
  EXPECT_EQ(groups, (std::vector<std::vector<int>>{{0, 2}, {1, 3}, {4, 5}, {6, 7}}));
}

TEST(PlacementTest, GroupsGoOverHostsOnlyWhereNoHostHasSoMany) {
  const Topology two = *topology::MakePreset("pcie-4", 2);
  const std::vector<Group> wide = Groups(two, 0, 8);
  ASSERT_EQ(wide.size(), 1U);
  EXPECT_EQ(wide[0].back(), (Site{1, 3}));
  EXPECT_EQ(Groups(two, 0, 3).size(), 2U);  // one GPU of each host is left
}

TEST(PlacementTest, EachTwoOfAnIslandAreNear) {
  const Topology cube = *topology::MakePreset("dgx-1v");
  const auto of = [](std::vector<int32_t> gpus) {
    Group group;
    for (const int32_t gpu : gpus) group.push_back({0, gpu});
    return group;
  };
  EXPECT_TRUE(IsIsland(cube, of({0, 1, 2, 3})));
  EXPECT_TRUE(IsIsland(cube, of({0, 4})));
  EXPECT_FALSE(IsIsland(cube, of({0, 1, 4})));  // 1 and 4 are far from each other
  EXPECT_FALSE(IsIsland(cube, of({0, 1, 2, 3, 4})));
  EXPECT_FALSE(IsIsland(*topology::MakePreset("dgx-h100", 2), {{0, 0}, {1, 0}}));
  EXPECT_TRUE(IsIsland(cube, {{0, -1}, {0, -1}}));
}

TEST(PlacementTest, CoresAreSitesToo) {
  Topology box;
  box.hosts = {{.name = "a", .cores = 2}, {.name = "b", .cores = 2}};
  const std::vector<Group> groups = Groups(box, 2, 2);
  ASSERT_EQ(groups.size(), 2U);
  EXPECT_EQ(groups[1], (Group{{1, -1}, {1, -1}}));
}

TEST(PlacementTest, ReplicasStayOnAHostWhileItHasGroups) {
  const Topology two = *topology::MakePreset("pcie-8", 2);
  const std::vector<Group> groups = Groups(two, 0, 2);  // four of each host
  const auto three = PlaceReplicas(groups, 3);
  ASSERT_EQ(three.size(), 2U);
  for (const auto& replica : three) EXPECT_EQ(replica[0][0].host, replica[2][0].host);
  EXPECT_EQ(PlaceReplicas(groups, 2).size(), 4U);
  // Four single groups are left of each host: three and one of the other make one.
  const auto six = PlaceReplicas(Groups(two, 0, 1), 6);
  EXPECT_EQ(six.size(), 2U);
  const auto five = PlaceReplicas(Groups(two, 0, 1), 5);
  ASSERT_EQ(five.size(), 3U);
  EXPECT_NE(five[2].front()[0].host, five[2].back()[0].host);
  std::set<std::pair<int, int>> used;
  for (const auto& replica : five) {
    for (const Group& group : replica)
      EXPECT_TRUE(used.insert({group[0].host, group[0].gpu}).second);
  }
  EXPECT_TRUE(PlaceReplicas(groups, 9).empty());
}

}  // namespace
}  // namespace skein::plan
