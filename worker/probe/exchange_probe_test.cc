#include "worker/probe/exchange_probe.h"

#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/test_util.h"
#include "gtest/gtest.h"
#include "tests/mpi/mpi_test_main.h"

namespace skein::worker {
namespace {

using topology::Exchange;
using topology::ExchangeCurve;

// Sizes of groups, of which those that leave no rank over, and powers of two.
std::vector<int> Sizes(int most, int ranks) {
  std::vector<int> sizes;
  for (int size = 2; size <= most; ++size) {
    if (ranks % size == 0 || (size & (size - 1)) == 0) sizes.push_back(size);
  }
  return sizes;
}

// Each size of groups has a curve of sums and one of gathers, on every rank, that of its group or,
// where it is left over, of the first one; two ranks next to each other have a way, and a rank that
// is left over waits for them.
TEST(ExchangeProbeTest, MeasuresEachGroup) {
  constexpr int32_t kEnough = 1024;
  comm::MpiRuntime& mpi = comm::TestRuntime();
  const absl::Time begin = absl::Now();
  std::vector<std::string> said;
  SKEIN_ASSERT_OK_AND_ASSIGN(const ProbedExchanges probed,
                             ProbeExchanges(mpi, {.cores = kEnough, .progress = [&](auto what) {
                                                    said.emplace_back(what);
                                                  }}));
  EXPECT_LT(absl::Now() - begin, absl::Seconds(20));
  EXPECT_FALSE(said.empty());
  std::vector<int> sums, gathers, hops, hops_to_awake;
  for (const ExchangeCurve& curve : probed.curves) {
    EXPECT_FALSE(curve.across);
    EXPECT_FALSE(curve.alone);
    ASSERT_GE(curve.times.size(), 3u);
    for (size_t i = 1; i < curve.times.size(); ++i) {
      EXPECT_GT(curve.times[i].bytes, curve.times[i - 1].bytes);
      EXPECT_GE(curve.times[i].time, curve.times[i - 1].time);
    }
    (curve.exchange == Exchange::kAllReduce     ? sums
     : curve.exchange == Exchange::kAllGather   ? gathers
     : curve.exchange == Exchange::kSendToAwake ? hops_to_awake
                                                : hops)
        .push_back(curve.ranks);
    if (curve.exchange != Exchange::kSendReceive && mpi.rank() != 0) continue;
    EXPECT_GT(curve.times.back().time, absl::ZeroDuration());
    EXPECT_LT(curve.times.back().time, absl::Seconds(1));
  }
  EXPECT_EQ(sums, Sizes(mpi.size(), mpi.size()));
  EXPECT_EQ(gathers, sums);
  EXPECT_EQ(hops, std::vector<int>{2});
  EXPECT_EQ(hops_to_awake, std::vector<int>{2});
  ASSERT_FALSE(probed.pairs.empty());
  for (const PairRate& pair : probed.pairs) {
    EXPECT_LT(pair.first, pair.second);
    EXPECT_GT(pair.rate.bytes_per_s, 0);
    EXPECT_GT(pair.rate.latency, absl::ZeroDuration());
  }
}

// Groups of a host with fewer cores than ranks sum beside others, and one of them alone.
TEST(ExchangeProbeTest, GroupsOfACrowdedHostAreMeasuredAlone) {
  comm::MpiRuntime& mpi = comm::TestRuntime();
  // All ranks measure it; who has cores enough leaves it out.
  SKEIN_ASSERT_OK_AND_ASSIGN(const ProbedExchanges probed,
                             ProbeExchanges(mpi, {.cores = mpi.rank() == 0 ? 1 : 1024}));
  std::vector<int> alone;
  for (const ExchangeCurve& curve : probed.curves) {
    if (curve.exchange == Exchange::kAllReduce && curve.alone) alone.push_back(curve.ranks);
  }
  EXPECT_EQ(alone, mpi.rank() == 0 ? Sizes(mpi.size() - 1, mpi.size()) : std::vector<int>());
}

}  // namespace
}  // namespace skein::worker
