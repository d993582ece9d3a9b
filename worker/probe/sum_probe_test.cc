#include "worker/probe/sum_probe.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/test_util.h"
#include "gtest/gtest.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/ops/backend.h"
#include "tests/mpi/mpi_test_main.h"
#include "worker/probe/group_plan.h"

namespace skein::worker {
namespace {

using topology::Exchange;
using topology::ExchangeCurve;

class SumProbeTest : public testing::Test {
 protected:
  SumProbeTest() {
    absl::StatusOr<std::unique_ptr<kernels::Backend>> backend =
        kernels::MakeCpuBackend({.threads = 1});
    EXPECT_TRUE(backend.ok()) << backend.status();
    device_.backend = *std::move(backend);
    // Ranks 0 and 1 are shards, and others wait for them.
    options_.plan = PlanOf(mpi_.size(), 2, /*stages=*/false,
                           [](int rank) { return rank < 2 ? Seat{0, rank} : Seat{}; });
  }

  ExchangeCurve Probe() {
    absl::StatusOr<ExchangeCurve> curve = ProbeSums(mpi_, device_, options_);
    EXPECT_TRUE(curve.ok()) << curve.status();
    return *std::move(curve);
  }

  comm::MpiRuntime& mpi_ = comm::TestRuntime();
  BenchDevice device_;
  SumProbeOptions options_;
};

TEST_F(SumProbeTest, AGroupHasTheTimeOfItsSums) {
  const ExchangeCurve curve = Probe();
  EXPECT_EQ(curve.exchange, Exchange::kAllReduce);
  EXPECT_EQ(curve.ranks, 2);
  if (mpi_.rank() > 1) {
    EXPECT_TRUE(curve.times.empty());
    return;
  }
  ASSERT_EQ(curve.times.size(), 2u);
  EXPECT_EQ(curve.times[0].bytes, 1024);  // a row of 256 values in F32
  EXPECT_EQ(curve.times[1].bytes, 4 * 1024);
  for (const topology::ExchangeTime& time : curve.times) {
    EXPECT_GT(time.time, absl::ZeroDuration());
    EXPECT_LT(time.time, absl::Milliseconds(100));
  }
}

TEST_F(SumProbeTest, WhoHasNoCoreTakesPartAndIsNotCompared) {
  options_.has_core = mpi_.rank() == 0;
  EXPECT_EQ(Probe().times.empty(), mpi_.rank() != 0);
}

// Taken for nothing, all of a step is sums; taken for a million steps, a hundredth of it is.
TEST_F(SumProbeTest, WhatTakesTurnsComputesForAsManySteps) {
  options_.ranks_of_a_core = 0;
  const ExchangeCurve all = Probe();
  options_.ranks_of_a_core = 1e6;
  const ExchangeCurve least = Probe();
  ASSERT_EQ(all.times.size(), least.times.size());
  for (size_t i = 0; i < all.times.size(); ++i) {
    EXPECT_GT(all.times[i].time, 10 * least.times[i].time);
    EXPECT_GT(least.times[i].time, absl::ZeroDuration());
  }
}

// A step of so many more layers takes longer, and so does the probe: fifteen layers a shard, not
// two.
TEST_F(SumProbeTest, AsManyLayersAsTheLargestCacheAsksFor) {
  const auto took = [&] {
    absl::Duration least = absl::InfiniteDuration();
    for (int i = 0; i < 3; ++i) {
      const absl::Time begin = absl::Now();
      Probe();
      least = std::min(least, absl::Now() - begin);
    }
    return least;
  };
  const absl::Duration few = took();
  if (mpi_.rank() == 1) options_.core_cache_bytes = 8 << 20;
  EXPECT_GT(took(), 2 * few);
}

TEST(CpuLayersOfShardTest, ThreeTimesACoresCache) {
  constexpr int64_t kLayer = 2 * 256 * (4 * 256 + 3 * 768);
  EXPECT_EQ(CpuLayersOfShard(0), 2);
  EXPECT_EQ(CpuLayersOfShard(512 << 10), 2);
  EXPECT_EQ(CpuLayersOfShard(kLayer), 3);
  EXPECT_EQ(CpuLayersOfShard(2 << 20), 4);
  EXPECT_EQ(CpuLayersOfShard(int64_t{1} << 50), 16);
}

TEST(CanProbeSumsTest, HeadsAreWhole) {
  EXPECT_FALSE(CanProbeSums(1));
  EXPECT_TRUE(CanProbeSums(2));
  EXPECT_FALSE(CanProbeSums(3));
  EXPECT_TRUE(CanProbeSums(4));
  EXPECT_TRUE(CanProbeSums(8));
  EXPECT_FALSE(CanProbeSums(16));
}

TEST(SetSumsOfStepsTest, StepsTellOfFewBytes) {
  const auto us = [](double value) { return absl::Microseconds(value); };
  const ExchangeCurve measured = {
      Exchange::kAllReduce, 2, false, {{1, us(5)}, {100, us(6)}, {1000, us(7)}}, 0.2};
  std::vector<ExchangeCurve> curves = {measured};
  SetSumsOfSteps({.exchange = Exchange::kAllReduce, .ranks = 2}, curves);
  EXPECT_EQ(curves, std::vector<ExchangeCurve>{measured});
  SetSumsOfSteps({Exchange::kAllReduce, 2, false, {{10, us(2)}, {100, us(8)}}, 0.1}, curves);
  EXPECT_EQ(curves[0].times,
            (std::vector<topology::ExchangeTime>{{10, us(2)}, {100, us(8)}, {1000, us(8)}}));
  EXPECT_EQ(curves[0].spread, 0.2);
}

TEST(SetSumsOfStepsTest, OtherGroupsAndExchangesStay) {
  const std::vector<topology::ExchangeTime> times = {{1, absl::Microseconds(5)}};
  const std::vector<topology::ExchangeTime> of_steps = {{1, absl::Microseconds(9)}};
  const auto curve = [&](Exchange exchange, int ranks, bool across, bool alone) {
    return ExchangeCurve{
        .exchange = exchange, .ranks = ranks, .across = across, .times = times, .alone = alone};
  };
  const std::vector<ExchangeCurve> before = {
      curve(Exchange::kAllReduce, 2, false, false), curve(Exchange::kAllReduce, 2, false, true),
      curve(Exchange::kAllReduce, 2, true, false),  curve(Exchange::kAllReduce, 4, false, false),
      curve(Exchange::kAllGather, 2, false, false), curve(Exchange::kAllGather, 2, false, true)};
  for (const bool alone : {false, true}) {
    std::vector<ExchangeCurve> expected = before, curves = before;
    expected[alone ? 1 : 0].times = of_steps;
    SetSumsOfSteps(
        {.exchange = Exchange::kAllReduce, .ranks = 2, .times = of_steps, .alone = alone}, curves);
    EXPECT_EQ(curves, expected);
  }
}

}  // namespace
}  // namespace skein::worker
