#include "worker/rank_groups.h"

#include "absl/time/time.h"
#include "base/device_kind.h"
#include "base/test_util.h"
#include "gtest/gtest.h"
#include "parallel/comm/operation_tracker.h"
#include "parallel/plan/plan.h"
#include "tests/mpi/mpi_test_main.h"

namespace skein::worker {
namespace {

// A stage of a GPU waits for tokens by polling, of CPUs, which compute with the same cores, not.
TEST(RankGroupsTest, StagesOfGpusPollForTokens) {
  plan::Plan plan;
  plan.layout.pp_size = 2;
  for (int32_t rank = 0; rank < 2; ++rank) plan.ranks.push_back({.rank = rank, .pp_rank = rank});
  for (const DeviceKind device : {DeviceKind::kCpu, DeviceKind::kCuda}) {
    comm::OperationTracker tracker;
    SKEIN_ASSERT_OK_AND_ASSIGN(
        const RankGroups groups,
        MakeRankGroups(comm::TestRuntime(), plan, plan.ranks[comm::TestRuntime().rank()],
                       {.device = device, .tracker = &tracker, .timeout = absl::Minutes(1)}));
    ASSERT_NE(groups.tokens, nullptr);
    EXPECT_EQ(groups.tokens->spin(),
              device == DeviceKind::kCuda ? kSpinForTokens : comm::Patience().spin);
  }
}

}  // namespace
}  // namespace skein::worker
