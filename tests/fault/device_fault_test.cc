// A rank whose device fails in the middle of an answer says so, and ends; all others of its job
// end, too, and the answer goes on elsewhere. The device is pretended; what CUDA's errors become is
// kernels/cuda/cuda_faults_test's.
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/cluster/cluster.h"
#include "tests/cluster/running_answer.h"
#include "tests/fault/faults.h"

namespace skein::testing {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;

struct FaultyDevice {
  std::string name;
  std::string layout;
  int ranks;
  int victim;
  std::string error;
};

class InAnAnswer : public ::testing::TestWithParam<FaultyDevice> {};

TEST_P(InAnAnswer, TheRankNamesStepAndErrorAndNobodyWaitsForIt) {
  const auto& [name, layout, ranks, victim, error] = GetParam();
  Cluster cluster({.layout = layout, .worker = kFaultyWorker});
  Process& job = cluster.StartJob(
      ranks, {kSlow, absl::StrCat("--device-fault=", victim, ":40:cudaEventQuery: ", error)});
  ASSERT_TRUE(cluster.WaitForServing(1));
  const cluster::v1::JobStatus lost = cluster.ServingJob(0);
  RunningAnswer moved(cluster);
  cluster.StartJob(ranks);
  // It has failed before the second job serves, or after that.
  const std::string who = absl::StrCat("rank ", victim, " on ", HostName());
  ASSERT_TRUE(cluster.coordinator().WaitForOutput(error, absl::Seconds(60)));
  const absl::Time told = absl::Now();
  EXPECT_THAT(cluster.coordinator().Output(),
              ContainsRegex(absl::StrCat(who, ".*: step 4[0-9]: cudaEventQuery: ", error)));
  const std::optional<int> status = job.Wait(kBound);
  ASSERT_TRUE(status.has_value()) << "mpirun still runs";
  EXPECT_NE(*status, 0);
  EXPECT_LT(absl::Now() - told, kBound);
  EXPECT_THAT(job.Output(), HasSubstr(error));
  // mpirun does not wait for ranks that it has killed.
  for (const auto& rank : lost.ranks()) {
    EXPECT_TRUE(WaitUntil(told + kBound - absl::Now(), [&] { return !IsAlive(rank.pid()); }))
        << "rank " << rank.rank() << " still runs";
  }
  moved.Join();
  EXPECT_TRUE(moved.status().ok()) << moved.status().error_message();
  EXPECT_EQ(moved.text(), cluster.Generate(GreedyRequest("ROMEO:", kLong)).text);
}

// As ranks warm up they wait for each other, and the one that cannot is the one that is named.
TEST(DeviceFaultTest, ARankThatFailsAsItWarmsUpIsNamedAndNobodyWaitsForIt) {
  Cluster cluster({.layout = "tp=2", .worker = kFaultyWorker});
  Process& job = cluster.StartJob(2, {"--device-fault=1:-1:cudaGraphInstantiate: cudaErrorEcc"});
  ASSERT_TRUE(cluster.coordinator().WaitForOutput("cudaErrorEcc", absl::Seconds(60)));
  EXPECT_THAT(cluster.coordinator().Output(),
              ContainsRegex(absl::StrCat("rank 1 on ", HostName(),
                                         ".*: cudaGraphInstantiate: cudaErrorEcc")));
  const std::optional<int> status = job.Wait(kBound);
  ASSERT_TRUE(status.has_value()) << "mpirun still runs";
  EXPECT_NE(*status, 0);
}

INSTANTIATE_TEST_SUITE_P(DeviceFaultTest, InAnAnswer,
                         ::testing::Values(FaultyDevice{"an_illegal_address_of_the_leader", "tp=2",
                                                        2, 0, "cudaErrorIllegalAddress"},
                                           FaultyDevice{"an_ecc_error_of_a_shard", "tp=2", 2, 1,
                                                        "cudaErrorECCUncorrectable"},
                                           FaultyDevice{"an_assertion_of_a_last_stage", "tp=2,pp=2",
                                                        4, 3, "cudaErrorAssert"}),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace skein::testing
