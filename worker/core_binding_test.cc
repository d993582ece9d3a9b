#include "worker/core_binding.h"

#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "parallel/plan/plan.h"

namespace skein::worker {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

plan::Plan PlanOfLayout(const plan::Layout& layout, int threads) {
  plan::Plan plan = {.layout = layout};
  for (int rank = 0; rank < layout.ranks(); ++rank) {
    plan.ranks.push_back({.rank = rank,
                          .dp_rank = rank / layout.tp_size / layout.pp_size,
                          .pp_rank = rank / layout.tp_size % layout.pp_size,
                          .tp_rank = rank % layout.tp_size,
                          .threads = threads});
  }
  return plan;
}

// By rank, all on one host.
std::vector<std::vector<int>> CoresOfAll(const plan::Layout& layout, int cores, int threads = 1) {
  const plan::Plan plan = PlanOfLayout(layout, threads);
  std::vector<int> ranks;
  for (const plan::RankPlan& rank : plan.ranks) ranks.push_back(rank.rank);
  std::vector<std::vector<int>> all;
  for (const int rank : ranks) all.push_back(CoresOfRank(plan, ranks, rank, cores));
  return all;
}

using Each = std::vector<std::vector<int>>;

TEST(CoresOfRankTest, RanksWithCoresOfTheirOwnStayFree) {
  EXPECT_EQ(CoresOfAll({.tp_size = 2, .pp_size = 2}, /*cores=*/4), Each(4));
  EXPECT_EQ(CoresOfAll({.tp_size = 2}, /*cores=*/4, /*threads=*/2), Each(2));
}

TEST(CoresOfRankTest, WhatComputesAtOnceGetsUnlikeCores) {
  EXPECT_EQ(CoresOfAll({.tp_size = 4}, 2), (Each{{0}, {1}, {0}, {1}}));
  EXPECT_EQ(CoresOfAll({.tp_size = 2, .pp_size = 2}, 2), (Each{{0}, {1}, {0}, {1}}));
  EXPECT_EQ(CoresOfAll({.tp_size = 2, .dp_size = 2}, 2), (Each{{0}, {1}, {0}, {1}}));
  EXPECT_EQ(CoresOfAll({.pp_size = 4}, 2), (Each{{0}, {0}, {1}, {1}}));
  EXPECT_EQ(CoresOfAll({.pp_size = 6}, 3), (Each{{0}, {0}, {1}, {1}, {2}, {2}}));
  EXPECT_EQ(CoresOfAll({.pp_size = 2, .dp_size = 2}, 2), (Each{{0}, {0}, {1}, {1}}));
  EXPECT_EQ(CoresOfAll({.dp_size = 4}, 2), (Each{{0}, {1}, {0}, {1}}));
  EXPECT_EQ(CoresOfAll({.pp_size = 4, .dp_size = 2}, 4),
            (Each{{0}, {0}, {1}, {1}, {2}, {2}, {3}, {3}}));
  EXPECT_EQ(CoresOfAll({.tp_size = 2, .pp_size = 2, .dp_size = 2}, 4),
            (Each{{0}, {1}, {0}, {1}, {2}, {3}, {2}, {3}}));
}

// The scheduler gives three ranks two thirds of a core each; bound, two would have a half.
TEST(CoresOfRankTest, CoresThatAreNotSharedEvenlyStayFree) {
  EXPECT_EQ(CoresOfAll({.tp_size = 3}, 2), Each(3));
  EXPECT_EQ(CoresOfAll({.pp_size = 2, .dp_size = 2}, 3), Each(4));
  EXPECT_EQ(CoresOfAll({.pp_size = 2, .dp_size = 3}, 4), Each(6));
  EXPECT_EQ(CoresOfAll({.tp_size = 3, .pp_size = 2}, 4), Each(6));
  EXPECT_EQ(CoresOfAll({.pp_size = 3}, 4, /*threads=*/2), Each(3));
}

TEST(CoresOfRankTest, ThreadsOfARankGetUnlikeCores) {
  EXPECT_EQ(CoresOfAll({.pp_size = 4}, 4, /*threads=*/2), (Each{{0, 1}, {0, 1}, {2, 3}, {2, 3}}));
  // Of all cores nothing is bound.
  EXPECT_EQ(CoresOfAll({.pp_size = 2}, 2, /*threads=*/2), Each(2));
  EXPECT_EQ(CoresOfAll({.dp_size = 2}, 1), Each(2));
}

TEST(CoresOfRankTest, HostsCountTheirOwnRanksThatHaveAPart) {
  const plan::Plan plan = PlanOfLayout({.tp_size = 2, .pp_size = 4}, 1);
  // Stages 0 and 2, of which this host has no others.
  EXPECT_THAT(CoresOfRank(plan, {0, 1, 4, 5}, 5, /*cores=*/2), ElementsAre(1));
  EXPECT_THAT(CoresOfRank(plan, {0, 1, 4, 5}, 5, /*cores=*/4), IsEmpty());
  EXPECT_THAT(CoresOfRank(plan, {0, 1, 8, 9}, 1, /*cores=*/2), IsEmpty());
  EXPECT_THAT(CoresOfRank(plan, {0, 1, 4, 8}, 8, /*cores=*/2), IsEmpty());
  // Shards 0 and 2 of a stage, whose others are elsewhere.
  const plan::Plan wide = PlanOfLayout({.tp_size = 4, .pp_size = 2}, 1);
  EXPECT_THAT(CoresOfRank(wide, {0, 2, 4, 6}, 0, /*cores=*/2), ElementsAre(0));
  EXPECT_THAT(CoresOfRank(wide, {0, 2, 4, 6}, 2, /*cores=*/2), ElementsAre(1));
}

}  // namespace
}  // namespace skein::worker
