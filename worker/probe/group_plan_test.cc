#include "worker/probe/group_plan.h"

#include <map>
#include <set>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

namespace skein::worker {
namespace {

// Two that meet agree on it: otherwise one would wait for good.
TEST(PartnerInTest, EachMeetsEachOnce) {
  for (int count = 2; count <= 9; ++count) {
    SCOPED_TRACE(count);
    std::set<std::pair<int, int>> met;
    int alone = 0;
    for (int round = 0; round < count + count % 2 - 1; ++round) {
      for (int at = 0; at < count; ++at) {
        const int other = PartnerIn(round, at, count);
        if (other < 0) {
          ++alone;
          continue;
        }
        ASSERT_LT(other, count);
        ASSERT_NE(other, at);
        EXPECT_EQ(PartnerIn(round, other, count), at);
        if (at < other) EXPECT_TRUE(met.emplace(at, other).second);
      }
    }
    EXPECT_EQ(met.size(), count * (count - 1) / 2);
    EXPECT_EQ(alone, count % 2 == 0 ? 0 : count);
  }
}

// Of two, of four and of all hosts, by one rank of each and by all; neighbours first.
TEST(PlacesTest, GroupsGoOverHosts) {
  const Places even(std::vector<int>{0, 0, 1, 1, 2, 2, 3, 3, 4, 4});
  EXPECT_EQ(even.GroupsAcross(),
            (std::vector<AcrossShape>{{2, 1}, {2, 2}, {4, 1}, {4, 2}, {5, 1}, {5, 2}}));
  EXPECT_EQ(Places(std::vector<int>{0, 0, 1}).GroupsAcross(), (std::vector<AcrossShape>{{2, 1}}));
  EXPECT_EQ(Places(std::vector<int>{0, 1}).GroupsAcross(), (std::vector<AcrossShape>{{2, 1}}));
  EXPECT_TRUE(Places(std::vector<int>{0, 0}).GroupsAcross().empty());
  const auto places = [&](const AcrossShape& shape) {
    std::map<int, std::vector<int>> groups;
    for (int rank = 0; rank < 10; ++rank) {
      const Seat seat = SeatAcross(even, rank, shape);
      if (seat.group < 0) continue;
      EXPECT_EQ(seat.place, groups[seat.group].size());
      groups[seat.group].push_back(rank);
    }
    return groups;
  };
  using Groups = std::map<int, std::vector<int>>;
  EXPECT_EQ(places({2, 1}), (Groups{{0, {0, 2}}, {1, {4, 6}}}));  // the fifth is left over
  EXPECT_EQ(places({2, 2}), (Groups{{0, {0, 1, 2, 3}}, {1, {4, 5, 6, 7}}}));
  EXPECT_EQ(places({5, 1}), (Groups{{0, {0, 2, 4, 6, 8}}}));
}

TEST(PlacesTest, HostsWithFewerRanksHaveFewerGroups) {
  const Places places(std::vector<int>{0, 0, 1, 0, 0, 1, 2});  // four, two and one
  EXPECT_EQ(places.hosts(), 3);
  EXPECT_EQ(places.most_local(), 4);
  EXPECT_EQ(places.FirstOf(1), 2);
  EXPECT_EQ(places.GroupSizes(), (std::vector<int>{2, 4}));
  EXPECT_EQ(Places(std::vector<int>{0, 0, 0, 0, 0, 0}).GroupSizes(),
            (std::vector<int>{2, 3, 4, 6}));
  EXPECT_EQ(Places(std::vector<int>{0, 0, 0, 1}).GroupSizes(), (std::vector<int>{2, 3}));
  const auto groups = [&](int size, bool one_group) {
    std::map<int, std::vector<int>> ranks;
    for (int rank = 0; rank < 7; ++rank) {
      const Seat seat = SeatOnHost(places, rank, size, one_group);
      if (seat.group < 0) continue;
      std::vector<int>& of = ranks[seat.group];
      EXPECT_EQ(seat.place, of.size());
      of.push_back(rank);
    }
    std::vector<std::vector<int>> all;
    for (auto& [group, of] : ranks) all.push_back(of);
    return all;
  };
  using Groups = std::vector<std::vector<int>>;
  EXPECT_EQ(groups(2, false), (Groups{{0, 1}, {3, 4}, {2, 5}}));
  EXPECT_EQ(groups(2, true), (Groups{{0, 1}, {2, 5}}));
  EXPECT_EQ(groups(4, false), (Groups{{0, 1, 3, 4}}));
}

// Each pair of each host has a round, and no rank is in two groups of one.
TEST(SeatInPairTest, HostsWithFewerRanksAreDoneSooner) {
  const Places places(std::vector<int>{0, 0, 1, 0, 0, 1, 2});
  std::set<std::pair<int, int>> met;
  for (int round = 0; round < 3; ++round) {
    std::map<int, std::vector<int>> ranks;
    for (int rank = 0; rank < 7; ++rank) {
      const Seat seat = SeatInPair(places, rank, round);
      if (seat.group < 0) continue;
      EXPECT_EQ(seat.place, ranks[seat.group].size());
      ranks[seat.group].push_back(rank);
    }
    for (const auto& [group, of] : ranks) {
      ASSERT_EQ(of.size(), 2);
      EXPECT_EQ(places.host[of[0]], places.host[of[1]]);
      EXPECT_TRUE(met.emplace(of[0], of[1]).second);
    }
  }
  EXPECT_EQ(met.size(), 6 + 1);
}

// Groups of ranks of unlike hosts, and no idle rank among them.
TEST(PlanOfTest, NobodyIsInAnothersGroup) {
  for (const std::vector<int>& hosts : {std::vector<int>{0, 1, 1, 1},
                                        {0, 1, 1, 1, 1},
                                        {0, 0, 0, 0, 0, 0, 1, 1, 2, 2, 3, 3, 3, 3}}) {
    const Places places(hosts);
    const auto ranks = static_cast<int>(hosts.size());
    for (const int size : places.GroupSizes()) {
      for (const bool pairs : {false, true}) {
        const plan::Plan plan = PlanOf(ranks, pairs ? 2 : size, pairs, [&](int rank) {
          return pairs ? SeatInPair(places, rank, 0) : SeatOnHost(places, rank, size);
        });
        std::map<int32_t, std::set<int>> members;
        for (const plan::RankPlan& rank : plan.ranks) members[rank.dp_rank].insert(rank.rank);
        for (const auto& [group, of] : members) {
          if (of.size() == 1) continue;
          EXPECT_EQ(of.size(), pairs ? 2 : size);
          EXPECT_LT(group, ranks);
          for (const int rank : of) EXPECT_EQ(hosts[rank], hosts[*of.begin()]);
        }
      }
    }
  }
}

TEST(PlanOfTest, GroupsHaveTheirPlacesAndOthersIdle) {
  const plan::Plan plan = PlanOf(
      5, 2, /*stages=*/true, [](int rank) { return rank < 4 ? Seat{rank / 2, rank % 2} : Seat{}; });
  EXPECT_EQ(plan.layout.pp_size, 2);
  EXPECT_EQ(plan.ranks[3].dp_rank, 1);
  EXPECT_EQ(plan.ranks[3].pp_rank, 1);
  for (int rank = 0; rank < 4; ++rank) EXPECT_NE(plan.ranks[rank].dp_rank, plan.ranks[4].dp_rank);
}

}  // namespace
}  // namespace skein::worker
