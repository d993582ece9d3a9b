#include "worker/probe/group_plan.h"

#include <set>
#include <utility>

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
