// A rank without a part in its job's plan: it is there, it ends with the others, and its loss is
// one.
#include <signal.h>

#include <optional>

#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/cluster/cluster.h"

namespace skein::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// Three ranks for two shards.
class IdleRanksTest : public ::testing::Test {
 protected:
  IdleRanksTest() : cluster_({.layout = "tp=2"}) {
    job_ = &cluster_.StartJob(3);
    EXPECT_TRUE(cluster_.WaitForServing(1));
  }

  Answer Generate() { return cluster_.Generate(GreedyRequest("ROMEO:", 24)); }

  Cluster cluster_;
  Process* job_;
};

TEST_F(IdleRanksTest, TheOthersAnswer) {
  const cluster::v1::JobStatus job = cluster_.ServingJob(0);
  ASSERT_EQ(job.ranks_size(), 3);
  EXPECT_EQ(job.ranks(0).state(), "ready");
  EXPECT_EQ(job.ranks(1).state(), "ready");
  EXPECT_EQ(job.ranks(2).state(), "idle");
  EXPECT_EQ(job.ranks(2).bytes_read(), 0);
  EXPECT_THAT(
      cluster_.coordinator().Output(),
      AllOf(HasSubstr("Rank 2 idles: no layout of all 3 works."), HasSubstr("    2  idle")));
  const Answer answer = Generate();
  ASSERT_TRUE(answer.status.ok()) << answer.status.error_message();
  Cluster whole({.layout = "tp=2"});
  whole.StartJob(2);
  ASSERT_TRUE(whole.WaitForServing(1));
  EXPECT_EQ(answer.tokens, whole.Generate(GreedyRequest("ROMEO:", 24)).tokens);
  // All end as they are told.
  cluster_.coordinator().Signal(SIGTERM);
  EXPECT_EQ(job_->Wait(absl::Seconds(10)), std::optional<int>(0)) << job_->Output();
}

TEST_F(IdleRanksTest, ItsLossIsTheJobs) {
  ASSERT_EQ(kill(cluster_.ServingJob(0).ranks(2).pid(), SIGKILL), 0);
  EXPECT_TRUE(cluster_.coordinator().WaitForOutput(" is lost: ", absl::Seconds(5)));
  EXPECT_THAT(cluster_.coordinator().Output(), ::testing::ContainsRegex("rank 2 on .* is lost: "));
  const std::optional<int> status = job_->Wait(absl::Seconds(5));
  ASSERT_TRUE(status.has_value());
  EXPECT_NE(*status, 0);
}

TEST_F(IdleRanksTest, ItComesBackToANewCoordinator) {
  const Answer before = Generate();
  cluster_.coordinator().Signal(SIGKILL);
  ASSERT_TRUE(cluster_.coordinator().Wait(absl::Seconds(5)).has_value());
  cluster_.RestartCoordinator();
  ASSERT_TRUE(cluster_.WaitForServing(1));
  EXPECT_EQ(cluster_.ServingJob(0).ranks(2).state(), "idle");
  EXPECT_EQ(Generate().tokens, before.tokens);
}

}  // namespace
}  // namespace skein::testing
