#include "parallel/pipeline/shared_cores.h"

#include <cstdint>
#include <utility>
#include <vector>

#include "base/test_util.h"
#include "gtest/gtest.h"
#include "parallel/pipeline/pipeline_schedule.h"

namespace skein::schedule {
namespace {

constexpr absl::Duration kMs = absl::Milliseconds(1);

double StepMs(const SharedCores& cores, int32_t micro_batches, int32_t steps = 32) {
  return absl::ToDoubleMilliseconds(
      FindSteadyState(SimulateDecodes(cores, micro_batches, steps)).step_period);
}

// Four stages of 12 ms.
SharedCores Four(const std::vector<int32_t>& core) {
  return {.compute = std::vector<absl::Duration>(4, 12 * kMs), .core = core};
}

TEST(SharedCoresTest, StagesWithCoresOfTheirOwnDecodeAsSchedulesSay) {
  SharedCores cores = {.compute = {3 * kMs, 5 * kMs, 4 * kMs, 7 * kMs},
                       .core = {0, 1, 2, 3},
                       .hop = kMs,
                       .token_hop = 2 * kMs};
  Costs costs;
  costs.compute = [&](int32_t stage, MicroBatchId) { return cores.compute[stage]; };
  costs.hop = cores.hop;
  costs.token_hop = cores.token_hop;
  for (const int32_t micro_batches : {1, 2, 3}) {
    SKEIN_ASSERT_OK_AND_ASSIGN(const Timeline expected,
                               Simulate(Decode(4, micro_batches, 32), costs));
    EXPECT_EQ(StepMs(cores, micro_batches),
              absl::ToDoubleMilliseconds(FindSteadyState(expected).step_period))
        << micro_batches;
  }
}

TEST(SharedCoresTest, StagesAtOnceShareTheirCore) {
  // A stage behind, a micro-batch has the core that the other one has, too, in two stages of four.
  EXPECT_NEAR(StepMs(Four({0, 0, 1, 1}), 2), 72, 1e-6);
  EXPECT_NEAR(StepMs(Four({0, 1, 0, 1}), 2), 48, 1e-6);
  EXPECT_NEAR(StepMs(Four({0, 0, 1, 1}), 1), 48, 1e-6);
  EXPECT_NEAR(StepMs(Four({0, 0, 1, 1}), 4), 96, 1e-6);
  EXPECT_NEAR(StepMs(Four({0, 0, 0, 0}), 2), 96, 1e-6);
}

TEST(SharedCoresTest, TheCoreWithTheMostWorkBinds) {
  SharedCores cores = Four({0, 0, 1, 1});
  cores.compute[3] = 20 * kMs;
  EXPECT_NEAR(StepMs(cores, 4), 4 * 32, 1e-6);
}

TEST(SharedCoresTest, TellsWhenStagesWork) {
  const Timeline timeline =
      SimulateDecodes({.compute = {3 * kMs, 3 * kMs}, .core = {0, 0}, .hop = kMs}, 2, 1);
  ASSERT_EQ(timeline.stages, 2);
  std::vector<std::pair<double, double>> found;
  for (const Interval& interval : timeline.intervals) {
    EXPECT_EQ(interval.stage, found.size() / 2);
    EXPECT_EQ(interval.what, (MicroBatchId{0, static_cast<int32_t>(found.size() % 2)}));
    found.emplace_back(absl::ToDoubleMilliseconds(interval.begin),
                       absl::ToDoubleMilliseconds(interval.end));
  }
  // From 4 to 8 both have half of the core.
  const std::vector<std::pair<double, double>> expected = {{0, 3}, {3, 8}, {4, 9}, {9, 12}};
  EXPECT_EQ(found, expected);
}

}  // namespace
}  // namespace skein::schedule
