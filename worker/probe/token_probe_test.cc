#include "worker/probe/token_probe.h"

#include <memory>

#include "absl/time/time.h"
#include "base/test_util.h"
#include "gtest/gtest.h"
#include "kernels/cpu/cpu_backend.h"
#include "tests/mpi/mpi_test_main.h"
#include "worker/probe/group_plan.h"

namespace skein::worker {
namespace {

using topology::ExchangeCurve;

// Ranks 0 and 1 are stages, and others wait for them. A message is taken off: one that would take
// less than nothing is added, and one of a second leaves nothing.
TEST(TokenProbeTest, APairHasTheTimeBeyondStagesAndHop) {
  comm::MpiRuntime& mpi = comm::TestRuntime();
  BenchDevice device;
  SKEIN_ASSERT_OK_AND_ASSIGN(device.backend, kernels::MakeCpuBackend({.threads = 1}));
  TokenProbeOptions options = {
      .plan = PlanOf(mpi.size(), 2, /*stages=*/true,
                     [](int rank) { return rank < 2 ? Seat{0, rank} : Seat{}; }),
      .hop = {topology::Origin::kMeasured, absl::Seconds(-1), 1e15}};
  SKEIN_ASSERT_OK_AND_ASSIGN(const ExchangeCurve curve, ProbeTokenReturn(mpi, device, options));
  EXPECT_EQ(curve.exchange, topology::Exchange::kTokenReturn);
  EXPECT_EQ(curve.ranks, 2);
  options.hop.latency = absl::Seconds(1);
  SKEIN_ASSERT_OK_AND_ASSIGN(const ExchangeCurve none, ProbeTokenReturn(mpi, device, options));
  if (mpi.rank() > 1) {
    EXPECT_TRUE(curve.times.empty());
    return;
  }
  ASSERT_EQ(curve.times.size(), 3u);
  EXPECT_EQ(curve.times[0].bytes, 4);
  EXPECT_EQ(curve.times[2].bytes, 256);
  EXPECT_GT(curve.times[0].time, absl::Milliseconds(900));
  EXPECT_LT(curve.times[2].time, absl::Milliseconds(1500));
  EXPECT_EQ(curve.times[1].bytes, 32);
  ASSERT_EQ(none.times.size(), 3u);
  for (const topology::ExchangeTime& time : none.times) {
    EXPECT_EQ(time.time, absl::ZeroDuration());
  }
}

}  // namespace
}  // namespace skein::worker
