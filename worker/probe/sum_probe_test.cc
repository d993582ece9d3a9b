#include "worker/probe/sum_probe.h"

#include <memory>

#include "absl/time/time.h"
#include "base/test_util.h"
#include "gtest/gtest.h"
#include "kernels/cpu/cpu_backend.h"
#include "tests/mpi/mpi_test_main.h"
#include "worker/probe/group_plan.h"

namespace skein::worker {
namespace {

using topology::Exchange;
using topology::ExchangeCurve;

// Ranks 0 and 1 are shards, and others wait for them.
TEST(SumProbeTest, AGroupHasTheTimeOfItsSums) {
  comm::MpiRuntime& mpi = comm::TestRuntime();
  BenchDevice device;
  SKEIN_ASSERT_OK_AND_ASSIGN(device.backend, kernels::MakeCpuBackend({.threads = 1}));
  const SumProbeOptions options = {.plan = PlanOf(mpi.size(), 2, /*stages=*/false, [](int rank) {
                                     return rank < 2 ? Seat{0, rank} : Seat{};
                                   })};
  SKEIN_ASSERT_OK_AND_ASSIGN(const ExchangeCurve curve, ProbeSums(mpi, device, options));
  EXPECT_EQ(curve.exchange, Exchange::kAllReduce);
  EXPECT_EQ(curve.ranks, 2);
  if (mpi.rank() > 1) {
    EXPECT_TRUE(curve.times.empty());
    return;
  }
  ASSERT_EQ(curve.times.size(), 3u);
  EXPECT_EQ(curve.times[0].bytes, 1024);  // a row of 256 values in F32
  EXPECT_EQ(curve.times[2].bytes, 64 * 1024);
  for (const topology::ExchangeTime& time : curve.times) {
    EXPECT_GT(time.time, absl::ZeroDuration());
    EXPECT_LT(time.time, absl::Milliseconds(100));
  }
}

TEST(SumProbeTest, HeadsAreWhole) {
  EXPECT_FALSE(CanProbeSums(1));
  EXPECT_TRUE(CanProbeSums(2));
  EXPECT_FALSE(CanProbeSums(3));
  EXPECT_TRUE(CanProbeSums(4));
  EXPECT_TRUE(CanProbeSums(8));
  EXPECT_FALSE(CanProbeSums(16));
}

TEST(SumProbeTest, StepsTellOfFewBytes) {
  const auto us = [](double value) { return absl::Microseconds(value); };
  const ExchangeCurve measured = {
      Exchange::kAllReduce, 2, false, {{1, us(5)}, {100, us(6)}, {1000, us(7)}}, 0.2};
  EXPECT_EQ(WithSumsOfSteps(measured, {}), measured);
  const ExchangeCurve of_steps = {Exchange::kAllReduce, 2, false, {{10, us(2)}, {100, us(8)}}, 0.1};
  const ExchangeCurve both = WithSumsOfSteps(measured, of_steps);
  EXPECT_EQ(both.times,
            (std::vector<topology::ExchangeTime>{{10, us(2)}, {100, us(8)}, {1000, us(8)}}));
  EXPECT_EQ(both.spread, 0.2);
}

}  // namespace
}  // namespace skein::worker
