// A job of ranks whose back ends must be warm before they compute, as those of GPUs must.
#include <cstdlib>
#include <fstream>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "tests/cluster/cluster.h"
#include "tests/cluster/running_answer.h"

namespace skein::testing {
namespace {

// Ranks meet in it, so that one that stays away is missed; and a back end that is cold computes
// nothing.
TEST(WarmUpTest, AllRanksTakePartAfterLoadingAndBeforeTheyServe) {
  const std::string gate = absl::StrCat(std::getenv("TEST_TMPDIR"), "/gate");
  Cluster cluster({.layout = "tp=2", .worker = "tests/fault/faulty_worker"});
  Process& job = cluster.StartJob(2, {"--warm-up=" + gate});
  for (const char* rank : {"rank 0", "rank 1"}) {
    EXPECT_TRUE(job.WaitForOutput(absl::StrCat(rank, " | warming up"), absl::Seconds(60)))
        << job.Output();
  }
  absl::SleepFor(absl::Milliseconds(500));  // for whoever would tell the coordinator too early
  ASSERT_EQ(cluster.Status().jobs_size(), 1);
  EXPECT_EQ(cluster.Status().jobs(0).state(), "loading");
  std::ofstream(gate).flush();
  ASSERT_TRUE(cluster.WaitForServing(1)) << job.Output();
  const Answer answer = cluster.Generate(GreedyRequest("ROMEO:", 8));
  EXPECT_TRUE(answer.status.ok()) << answer.status.error_message();
}

// Its shard waits for it as they meet.
TEST(WarmUpTest, ARankThatHangsIsNamedByTheDeadline) {
  const std::string gate = absl::StrCat(std::getenv("TEST_TMPDIR"), "/open");
  std::ofstream(gate).flush();
  Cluster cluster({.layout = "tp=2", .worker = "tests/fault/faulty_worker"});
  Process& job = cluster.StartJob(2, {"--warm-up=" + gate, "--warm-up-timeout=2s",
                                      "--fault=tp of replica 0, stage 0:1:before:all-reduce 1"});
  const std::string who = absl::StrCat("rank 1 on ", HostName(),
                                       ": warming up was not over within 2s: it is beginning");
  EXPECT_TRUE(cluster.coordinator().WaitForOutput(who, absl::Seconds(30))) << job.Output();
  const std::optional<int> status = job.Wait(absl::Seconds(10));
  ASSERT_TRUE(status.has_value()) << "mpirun still runs";
  EXPECT_NE(*status, 0);
}

}  // namespace
}  // namespace skein::testing
