#include "parallel/planner/partition.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

#include "gtest/gtest.h"

namespace skein::plan {
namespace {

using Groups = std::vector<std::vector<int>>;

// Of six items and each other.
using Costs = std::array<std::array<double, 6>, 6>;
Costs RandomCosts(std::mt19937& random, double most) {
  Costs costs;
  for (auto& row : costs) {
    for (double& cost : row) cost = std::uniform_real_distribution<>(1, most)(random);
  }
  return costs;
}

GroupCost Same(const std::vector<int>& /*group*/) { return {0, 1}; }

TEST(BestGroupsTest, WhatIsAlikeStaysInOrder) {
  EXPECT_EQ(BestGroups(8, 2, Same), (Groups{{0, 1}, {2, 3}, {4, 5}, {6, 7}}));
  EXPECT_EQ(BestGroups(8, 3, Same), (Groups{{0, 1, 2}, {3, 4, 5}}));
  EXPECT_EQ(BestGroups(3, 3, Same), (Groups{{0, 1, 2}}));
  EXPECT_EQ(BestGroups(3, 1, Same), (Groups{{0}, {1}, {2}}));
  EXPECT_TRUE(BestGroups(3, 4, Same).empty());
}

// A pair that is twice as slow as others is in no group while one more can be left over, and else
// with whom it costs the least.
TEST(BestGroupsTest, TheSlowestCounts) {
  const auto cost = [](const std::vector<int>& group) -> GroupCost {
    return {0, group == std::vector<int>{0, 1} || group == std::vector<int>{2, 3} ? 2.0 : 1.0};
  };
  EXPECT_EQ(BestGroups(4, 2, cost), (Groups{{0, 2}, {1, 3}}));
  EXPECT_EQ(BestGroups(3, 2, cost), (Groups{{0, 2}}));
}

TEST(BestGroupsTest, LessThan5PercentPartsNothingAnew) {
  const auto groups = [](double other) {
    return BestGroups(4, 2, [other](const std::vector<int>& group) -> GroupCost {
      return {0, group[1] == group[0] + 1 ? 1.0 : other};
    });
  };
  EXPECT_EQ(groups(0.96), (Groups{{0, 1}, {2, 3}}));
  EXPECT_EQ(groups(0.94), (Groups{{0, 2}, {1, 3}}));
}

// One slow group that cannot be helped does not hide what the others take.
TEST(BestGroupsTest, BehindTheSlowestTheOthersCount) {
  const auto cost = [](const std::vector<int>& group) -> GroupCost {
    if (group[0] == 0) return {0, 100};  // whoever is with it
    return {0, group == std::vector<int>{2, 3} || group == std::vector<int>{4, 5} ? 2.0 : 1.0};
  };
  EXPECT_EQ(BestGroups(6, 2, cost), (Groups{{0, 1}, {2, 4}, {3, 5}}));
}

TEST(BestGroupsTest, FaultsCountBeforeTimes) {
  const auto cost = [](const std::vector<int>& group) -> GroupCost {
    const bool odd = (group[0] + group[1]) % 2 != 0;
    return {odd ? 1 : 0, odd ? 1.0 : 50.0};
  };
  EXPECT_EQ(BestGroups(4, 2, cost), (Groups{{0, 2}, {1, 3}}));
  // Of three odd and three even ones two are together, and times are those of alike ones.
  const auto unlike = [](const std::vector<int>& group) -> GroupCost {
    const bool odd = (group[0] + group[1]) % 2 != 0;
    return {odd ? 1 : 0, group == std::vector<int>{0, 2} ? 9.0 : 1.0};
  };
  EXPECT_EQ(BestGroups(6, 2, unlike), (Groups{{0, 1}, {2, 4}, {3, 5}}));
}

TEST(BestGroupsTest, WhatTakesForeverIsNoParting) {
  EXPECT_TRUE(BestGroups(4, 2, [](const std::vector<int>&) -> GroupCost {
                return {0, std::numeric_limits<double>::infinity()};
              }).empty());
}

// Against all partings into pairs, by random costs: of none is the slowest far faster.
TEST(BestGroupsTest, NoPartingIsFarBetter) {
  std::mt19937 random(7);
  for (int round = 0; round < 20; ++round) {
    const Costs costs = RandomCosts(random, 2);
    const auto cost = [&](const std::vector<int>& group) -> GroupCost {
      return {0, costs[group[0]][group[1]]};
    };
    const auto slowest = [&](const Groups& groups) {
      double most = 0;
      for (const std::vector<int>& group : groups) most = std::max(most, cost(group).time);
      return most;
    };
    std::vector<int> order(6);
    std::iota(order.begin(), order.end(), 0);
    double least = 1e9;
    do {
      Groups pairs;
      for (int i = 0; i < 6; i += 2) {
        pairs.push_back({std::min(order[i], order[i + 1]), std::max(order[i], order[i + 1])});
      }
      least = std::min(least, slowest(pairs));
    } while (std::next_permutation(order.begin(), order.end()));
    EXPECT_LE(slowest(BestGroups(6, 2, cost)), least / 0.95);
  }
}

TEST(BestOrderTest, StaysWhereNoOrderIsBetter) {
  const auto step = [](int from, int to) { return std::abs(from - to) == 1 ? 1.0 : 5.0; };
  EXPECT_EQ(BestOrder({3, 4, 5, 6}, step), (std::vector<int>{3, 4, 5, 6}));
  EXPECT_EQ(BestOrder({1, 0}, step), (std::vector<int>{1, 0}));
}

// Against all orders, by random steps.
TEST(BestOrderTest, IsTheLeastOfAll) {
  std::mt19937 random(11);
  for (int round = 0; round < 20; ++round) {
    const Costs steps = RandomCosts(random, 9);
    const auto step = [&](int from, int to) { return steps[from][to]; };
    std::vector<int> items(6);
    std::iota(items.begin(), items.end(), 0);
    std::vector<int> order = items;
    double least = 1e9;
    do {
      least = std::min(least, OrderCost(order, step));
    } while (std::next_permutation(order.begin(), order.end()));
    const std::vector<int> best = BestOrder(items, step);
    EXPECT_TRUE(std::is_permutation(best.begin(), best.end(), items.begin()));
    EXPECT_LE(OrderCost(best, step), least / 0.95);
  }
}

}  // namespace
}  // namespace skein::plan
