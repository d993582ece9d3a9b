#include "worker/doctor/exchanges.h"

#include "absl/time/time.h"
#include "base/test_util.h"
#include "gtest/gtest.h"
#include "tests/mpi/mpi_test_main.h"

namespace skein::worker {
namespace {

// Of one host without GPUs nothing is told, and all ranks come back. Messages between hosts are
// tried in tests/fault/hosts_doctor_test, GPUs in tests/gpu.
TEST(ExchangesTest, CoresOfOneHostHaveNothingToTell) {
  topology::RankFacts facts;
  SKEIN_ASSERT_OK(TryExchanges(comm::TestRuntime(), absl::Seconds(10), facts));
  EXPECT_TRUE(facts.ways.empty());
  EXPECT_EQ(facts.no_nccl, "");
  EXPECT_EQ(facts.no_peers, "");
  EXPECT_EQ(facts.nccl_bytes_per_s, 0);
}

}  // namespace
}  // namespace skein::worker
