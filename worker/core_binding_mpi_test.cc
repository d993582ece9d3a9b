// Of four ranks, which have two processors.
#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

#include "base/test_util.h"
#include "gtest/gtest.h"
#include "parallel/plan/plan.h"
#include "tests/mpi/mpi_test_main.h"
#include "topology/cpus.h"
#include "topology/host/cores.h"
#include "topology/host/host.h"
#include "topology/host/near_cpus.h"
#include "worker/core_binding.h"

namespace skein::worker {
namespace {

// As many replicas as cores, of two stages each.
plan::Plan TwoReplicas() {
  plan::Plan plan = {.layout = {.pp_size = 2, .dp_size = 2}};
  for (int rank = 0; rank < 4; ++rank) {
    plan.ranks.push_back({.rank = rank, .dp_rank = rank / 2, .pp_rank = rank % 2});
  }
  return plan;
}

TEST(BindToCoresTest, ReplicasHaveACoreEachAndWhatALauncherHasBoundStays) {
  comm::MpiRuntime& mpi = comm::TestRuntime();
  SKEIN_ASSERT_OK_AND_ASSIGN(const std::vector<topology::Cpus> cores, topology::AffinityCpus());
  topology::Cpus two;  // of two cores, not the hardware threads of one
  for (size_t i = 0; i < std::min<size_t>(2, cores.size()); ++i) two.push_back(cores[i].front());
  SKEIN_ASSERT_OK(topology::BindThreads(two));
  SKEIN_ASSERT_OK_AND_ASSIGN(const topology::Node node, topology::DescribeHost());
  SKEIN_ASSERT_OK_AND_ASSIGN(const std::string says, BindToCores(mpi, TwoReplicas()));
  SKEIN_ASSERT_OK_AND_ASSIGN(const topology::Cpus bound, topology::AllowedCpus());
  // A machine of one core, or a quota of one, has nothing to share out.
  const bool shares = node.cores == 2;
  EXPECT_EQ(bound, shares ? topology::Cpus{two[mpi.rank() / 2]} : two) << says;
  EXPECT_EQ(says.empty(), !shares);
  if (!shares) return;
  // As a launcher binds: ranks may not all use the same.
  const topology::Cpus given = mpi.rank() < 2 ? two : topology::Cpus{two[0]};
  SKEIN_ASSERT_OK(topology::BindThreads(given));
  SKEIN_ASSERT_OK_AND_ASSIGN(const std::string again, BindToCores(mpi, TwoReplicas()));
  EXPECT_EQ(again, "");
  EXPECT_EQ(*topology::AllowedCpus(), given);
}

}  // namespace
}  // namespace skein::worker
