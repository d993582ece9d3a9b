#include "worker/rank_groups.h"

#include <cstdint>
#include <vector>

#include "absl/time/time.h"
#include "base/device_kind.h"
#include "base/test_util.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "parallel/comm/operation_tracker.h"
#include "parallel/plan/plan.h"
#include "tests/mpi/mpi_test_main.h"

namespace skein::worker {
namespace {

using ::testing::ElementsAre;

// The part of this process in a plan for three ranks.
plan::RankPlan PartIn(const plan::Plan& plan) {
  const int rank = comm::TestRuntime().rank();
  const plan::RankPlan* const part = plan.Find(rank);
  return part != nullptr ? *part : plan::RankPlan{.rank = rank, .dp_rank = plan::kNoReplica};
}

// Two of three ranks have a stage each; the third meets them and gets nothing. A stage of a GPU
// waits for tokens by polling, of CPUs, which compute with the same cores, not.
TEST(RankGroupsTest, StagesOfGpusPollForTokens) {
  plan::Plan plan;
  plan.layout.pp_size = 2;
  for (int32_t rank = 0; rank < 2; ++rank) plan.ranks.push_back({.rank = rank, .pp_rank = rank});
  plan.idle_ranks = {2};
  for (const DeviceKind device : {DeviceKind::kCpu, DeviceKind::kCuda}) {
    comm::OperationTracker tracker;
    SKEIN_ASSERT_OK_AND_ASSIGN(
        const RankGroups groups,
        MakeRankGroups(comm::TestRuntime(), plan, PartIn(plan),
                       {.device = device, .tracker = &tracker, .timeout = absl::Minutes(1)}));
    if (comm::TestRuntime().rank() == 2) {
      EXPECT_EQ(groups.tp, nullptr);
      EXPECT_EQ(groups.tokens, nullptr);
      EXPECT_EQ(groups.control, nullptr);
      EXPECT_TRUE(groups.Hops().empty());
      continue;
    }
    ASSERT_NE(groups.tokens, nullptr);
    EXPECT_EQ(groups.control, nullptr);  // nobody asked for it
    EXPECT_EQ(groups.tokens->spin(),
              device == DeviceKind::kCuda ? kSpinForTokens : comm::Patience().spin);
  }
}

// Shards are numbered by their places, whatever mpirun calls them.
TEST(RankGroupsTest, PlacesCountNotNumbers) {
  plan::Plan plan;
  plan.layout.tp_size = 2;
  plan.ranks = {{.rank = 2, .tp_rank = 0}, {.rank = 0, .tp_rank = 1}};
  plan.idle_ranks = {1};
  const plan::RankPlan self = PartIn(plan);
  comm::OperationTracker tracker;
  SKEIN_ASSERT_OK_AND_ASSIGN(
      const RankGroups groups,
      MakeRankGroups(
          comm::TestRuntime(), plan, self,
          {.tracker = &tracker, .timeout = absl::Minutes(1), .control = comm::ControlOptions()}));
  ASSERT_EQ(groups.tp != nullptr, self.rank != 1);
  EXPECT_EQ(groups.control != nullptr, self.rank != 1);
  if (self.rank == 1) return;
  EXPECT_EQ(groups.tp->rank(), self.tp_rank);
  const float mine = static_cast<float>(self.rank);
  std::vector<float> all(2);
  SKEIN_ASSERT_OK(groups.tp->AllGather(ConstView{&mine, DType::kF32, 1, 1},
                                       {all.data(), DType::kF32, 2, 1}, kHostStream));
  EXPECT_THAT(all, ElementsAre(2, 0));
}

}  // namespace
}  // namespace skein::worker
