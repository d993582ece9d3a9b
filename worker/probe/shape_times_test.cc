#include "worker/probe/shape_times.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "base/dtype.h"
#include "base/status_macros.h"
#include "base/test_util.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/cpu/cpu_backend.h"
#include "worker/bench/bench_device.h"
#include "worker/probe/probe_model.h"

namespace skein::worker {
namespace {

using ::testing::ElementsAre;

constexpr ProbeShape kShape = {64, 64, 1, 64, 1};

class ShapeTimesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    SKEIN_ASSERT_OK_AND_ASSIGN(device_.backend, kernels::MakeCpuBackend({.threads = 1}));
  }

  absl::StatusOr<std::vector<ShapeTimes>> Time(const std::vector<ShapeSteps>& shapes) {
    SKEIN_ASSIGN_OR_RETURN(
        StepTimer timer,
        StepTimer::Start(device_,
                         {.progress = [&](std::string_view what) { said_.emplace_back(what); },
                          .meet = [&] { ++meetings_; }}));
    return TimeShapes(timer, shapes);
  }

  BenchDevice device_{.threads = 1};
  std::vector<std::string> said_;
  int meetings_ = 0;
};

std::vector<StepTime> StepsOf(const std::vector<double>& rounds) {
  std::vector<StepTime> steps;
  for (const double round : rounds) steps.push_back({.seconds = round});
  return steps;
}

TEST_F(ShapeTimesTest, AllModelsAreTimedInEachRound) {
  ProbeShape deep = kShape;
  deep.layers = 2;
  SKEIN_ASSERT_OK_AND_ASSIGN(
      const std::vector<ShapeTimes> times,
      Time({{.shape = kShape, .decodes = {1, 4, 16}, .prompts = {32}, .rounds = 2, .most_again = 4},
            {.shape = deep, .decodes = {2}, .rounds = 3},
            {.shape = kShape, .dtype = DType::kF32, .decodes = {1}}}));
  EXPECT_THAT(said_,
              ElementsAre("1 layer of 64 columns in BF16", "2 layers of 64 columns in BF16",
                          "1 layer of 64 columns in F32", "1 layer of 64 columns in BF16, again",
                          "2 layers of 64 columns in BF16, again",
                          "2 layers of 64 columns in BF16, again"));
  // Prompts meet nobody.
  EXPECT_EQ(meetings_, (3 + 1 + 1) + (2 + 1) + 1);
  ASSERT_EQ(times.size(), 3);
  ASSERT_EQ(times[0].points.size(), 4);
  EXPECT_EQ(times[0].points[0].rows, 1);
  EXPECT_EQ(times[0].points[1].rows, 4);
  EXPECT_EQ(times[0].points[2].rows, 16);
  EXPECT_EQ(times[0].points[3].rows, 32);
  EXPECT_EQ(times[0].points[3].context, 16);
  EXPECT_EQ(times[0].points[1].rounds.size(), 2);
  EXPECT_EQ(times[0].points[2].rounds.size(), 1);
  ASSERT_EQ(times[1].points.size(), 1);
  EXPECT_EQ(times[1].points[0].rows, 2);
  EXPECT_GT(times[1].cost.weight_bytes, times[0].cost.weight_bytes);
  for (const ShapeTimes& of : times) {
    for (const ShapeTimes::Point& point : of.points) {
      EXPECT_GT(point.seconds, 0);
      EXPECT_GT(point.context, 0);
      EXPECT_EQ(point.seconds, RoundThatCounts(StepsOf(point.rounds), false).seconds);
    }
  }
}

TEST(RoundThatCountsTest, TheShortestOfAGpuAndTheMedianOfCores) {
  const auto seconds = [](const std::vector<double>& rounds, bool is_gpu) {
    std::vector<StepTime> steps;
    for (const double round : rounds) steps.push_back({.seconds = round, .spread = 2 * round});
    const StepTime counts = RoundThatCounts(std::move(steps), is_gpu);
    EXPECT_EQ(counts.spread, 2 * counts.seconds);  // of the same round
    return counts.seconds;
  };
  EXPECT_EQ(seconds({3, 1, 2}, /*is_gpu=*/true), 1);
  EXPECT_EQ(seconds({3, 1, 2}, /*is_gpu=*/false), 2);
  EXPECT_EQ(seconds({2, 1}, /*is_gpu=*/false), 1);
  EXPECT_EQ(seconds({2}, /*is_gpu=*/false), 2);
  EXPECT_EQ(seconds({2}, /*is_gpu=*/true), 2);
}

// The longer, the fewer: some 15 and 250 ms.
TEST_F(ShapeTimesTest, LongStepsHaveFewSamplesAndLeaveOneOut) {
  SKEIN_ASSERT_OK_AND_ASSIGN(StepTimer timer, StepTimer::Start(device_, {}));
  SKEIN_ASSERT_OK_AND_ASSIGN(const auto model,
                             timer.Load({1024, 4096, 16, 64, 1}, DType::kBF16, {.sequences = 256}));
  // What else a host does may make the first one too long, but not each time.
  StepTime is_long;
  for (int i = 0; i < 20 && is_long.samples != 2; ++i) {
    SKEIN_ASSERT_OK_AND_ASSIGN(is_long, timer.Decodes(*model, 16, /*positions=*/5));
  }
  EXPECT_EQ(is_long.samples, 2) << is_long.seconds;
  EXPECT_EQ(is_long.context, 5 + 1 + 1);
  SKEIN_ASSERT_OK_AND_ASSIGN(const StepTime longer, timer.Decodes(*model, 256, /*positions=*/5));
  EXPECT_EQ(longer.samples, 1) << longer.seconds;
  EXPECT_EQ(longer.context, 5 + 1 + 0.5);
}

}  // namespace
}  // namespace skein::worker
