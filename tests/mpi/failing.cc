// Cases for mpi_test_self_test.sh, run on 3 ranks, and on 1.
#include <unistd.h>

#include <cstdlib>

#include "gtest/gtest.h"
#include "tests/mpi/mpi_test_main.h"

namespace skein::comm {
namespace {

TEST(Failing, OnNoRank) { EXPECT_NE(TestRuntime().size(), 2); }

TEST(Failing, OnRank2Only) { EXPECT_NE(TestRuntime().rank(), 2) << "planted on rank 2"; }

TEST(Failing, OnRank0Only) { EXPECT_NE(TestRuntime().rank(), 0) << "planted on rank 0"; }

TEST(FailingPeersTest, OnOneRank) { EXPECT_EQ(TestRuntime().size(), 3) << "planted on one rank"; }

TEST(Failing, Rank1Exits) {
  if (TestRuntime().rank() == 1) _exit(0);
}

}  // namespace
}  // namespace skein::comm
