// Tests what happens when ranks, jobs and coordinators die: real processes, real signals.
#include <signal.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <set>
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

using ::testing::HasSubstr;

// The processes of a job that was named, mpirun among them, end within this time.
constexpr absl::Duration kEnd = absl::Seconds(10);

std::set<std::string> SharedMemory() {
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator("/dev/shm")) {
    names.insert(entry.path().filename().string());
  }
  return names;
}

// Whatever was there before may go: it is somebody else's.
bool NothingIsLeftBut(const std::set<std::string>& before) {
  return WaitUntil(kBound, [&] {
    const std::set<std::string> now = SharedMemory();
    return std::includes(before.begin(), before.end(), now.begin(), now.end());
  });
}

std::vector<pid_t> Pids(const cluster::v1::JobStatus& job) {
  std::vector<pid_t> pids;
  for (const auto& rank : job.ranks()) pids.push_back(rank.pid());
  return pids;
}

bool NoneAlive(const std::vector<pid_t>& pids) {
  for (pid_t pid : pids) {
    if (IsAlive(pid)) return false;
  }
  return true;
}

struct FaultCase {
  std::string name;
  int signal;
  int victim;  // rank
};

void PrintTo(const FaultCase& c, std::ostream* out) { *out << c.name; }

class RankFaultTest : public ::testing::TestWithParam<FaultCase> {};

// Two jobs serve; a rank of one is lost in mid-answer.
TEST_P(RankFaultTest, EndsItsJobAloneAndANewOneServes) {
  const std::set<std::string> shared_memory = SharedMemory();
  Cluster cluster({.layout = "tp=2,pp=2", .worker = kFaultyWorker});
  Process& job = cluster.StartJob(4, {kSlow});
  ASSERT_TRUE(cluster.WaitForServing(1));
  const cluster::v1::JobStatus victim_job = cluster.ServingJob(0);
  RunningAnswer moved(cluster);  // on the only job there is
  Process& other = cluster.StartJob(4);
  ASSERT_TRUE(cluster.WaitForServing(2));
  RunningAnswer kept(cluster);  // on the idle job

  const int victim = GetParam().victim;
  const std::string who = absl::StrCat("rank ", victim, " on ", HostName(), " (pid ",
                                       victim_job.ranks(victim).pid(), ") is lost");
  const absl::Time named = absl::Now() + kBound;
  ASSERT_EQ(kill(victim_job.ranks(victim).pid(), GetParam().signal), 0);
  EXPECT_TRUE(cluster.coordinator().WaitForOutput(who, named - absl::Now()));
  const std::optional<int> exit_status = job.Wait(kEnd);
  ASSERT_TRUE(exit_status.has_value()) << "mpirun still runs";
  EXPECT_NE(*exit_status, 0);
  EXPECT_TRUE(WaitUntil(kEnd, [&] { return NoneAlive(Pids(victim_job)); }));

  kept.Join();
  EXPECT_TRUE(kept.status().ok()) << kept.status().error_message();
  moved.Join();
  EXPECT_TRUE(moved.status().ok()) << moved.status().error_message();
  EXPECT_EQ(moved.text(), kept.text());
  EXPECT_FALSE(other.Wait(absl::ZeroDuration()).has_value());
  cluster.StartJob(4);
  ASSERT_TRUE(cluster.WaitForServing(2));
  EXPECT_TRUE(cluster.Generate(GreedyRequest("JULIET:", 5)).status.ok());

  cluster.coordinator().Signal(SIGTERM);
  EXPECT_EQ(cluster.coordinator().Wait(absl::Seconds(20)), 0);
  EXPECT_EQ(other.Wait(absl::Seconds(20)), 0);
  EXPECT_TRUE(NothingIsLeftBut(shared_memory));
}

INSTANTIATE_TEST_SUITE_P(Faults, RankFaultTest,
                         ::testing::Values(FaultCase{"kill_leader", SIGKILL, 0},
                                           FaultCase{"kill_last", SIGKILL, 3},
                                           FaultCase{"stop_leader", SIGSTOP, 0},
                                           FaultCase{"stop_shard", SIGSTOP, 1}),
                         [](const auto& info) { return info.param.name; });

TEST(MpirunFaultTest, KillOfMpirunEndsEveryRank) {
  const std::set<std::string> shared_memory = SharedMemory();
  Cluster cluster(
      {.layout = "tp=2,pp=2", .coordinator_flags = {"--replica-wait=0s"}, .worker = kFaultyWorker});
  Process& job = cluster.StartJob(4, {kSlow});
  ASSERT_TRUE(cluster.WaitForServing(1));
  const std::vector<pid_t> pids = Pids(cluster.ServingJob(0));
  RunningAnswer answer(cluster);
  const absl::Time fault = absl::Now();
  job.Signal(SIGKILL);
  EXPECT_TRUE(WaitUntil(kBound, [&] { return NoneAlive(pids); }));
  EXPECT_TRUE(NothingIsLeftBut(shared_memory));
  answer.Join();
  EXPECT_LT(answer.done() - fault, kBound);
  EXPECT_EQ(answer.status().error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_THAT(answer.error(), HasSubstr("--replica-wait"));  // the last event said so, too
  EXPECT_THAT(answer.error(), HasSubstr(absl::StrCat("on ", HostName())));
  EXPECT_TRUE(cluster.WaitForStatus([](const auto& status) { return !status.serving(); }, kBound));
}

TEST(CoordinatorFaultTest, WorkersWaitForItSayingSoAndEndAsOrphans) {
  Cluster cluster({});
  cluster.coordinator().Signal(SIGKILL);
  cluster.coordinator().Wait(absl::Seconds(5));
  Process& job = cluster.StartJob(2, {"--orphan-timeout=8s"});
  EXPECT_TRUE(
      job.WaitForOutput("waiting for a coordinator at " + cluster.address(), absl::Seconds(15)));
  const std::optional<int> status = job.Wait(absl::Seconds(30));
  ASSERT_TRUE(status.has_value());
  EXPECT_NE(*status, 0);
  EXPECT_THAT(job.Output(), HasSubstr("--orphan-timeout"));
}

TEST(CoordinatorFaultTest, OneThatComesAfterItsWorkersIsServed) {
  Cluster cluster({});
  cluster.coordinator().Signal(SIGKILL);  // leaves an address at which nobody listens
  cluster.coordinator().Wait(absl::Seconds(5));
  Process& job = cluster.StartJob(2);
  ASSERT_TRUE(
      job.WaitForOutput("waiting for a coordinator at " + cluster.address(), absl::Seconds(15)));
  cluster.RestartCoordinator();
  ASSERT_TRUE(cluster.WaitForServing(1)) << job.Output();
  EXPECT_TRUE(cluster.Generate(GreedyRequest("ROMEO:", 5)).status.ok());
}

TEST(CoordinatorFaultTest, ServingWorkersOutliveItForTheOrphanTimeoutOnly) {
  Cluster cluster({.layout = "tp=1,pp=1"});
  Process& job = cluster.StartJob(2, {"--orphan-timeout=3s"});
  ASSERT_TRUE(cluster.WaitForServing(1));
  cluster.coordinator().Signal(SIGKILL);
  cluster.coordinator().Wait(absl::Seconds(5));
  const absl::Time lost = absl::Now();
  const std::optional<int> status = job.Wait(absl::Seconds(13));
  ASSERT_TRUE(status.has_value());
  EXPECT_GT(absl::Now() - lost, absl::Milliseconds(2500)) << job.Output();
  EXPECT_NE(*status, 0);
  EXPECT_THAT(job.Output(), HasSubstr(absl::StrCat("no coordinator at ", cluster.address(),
                                                   " for 3s (--orphan-timeout)")));
}

TEST(CoordinatorFaultTest, AStoppedOneIsAsGoodAsNone) {
  Cluster cluster({.layout = "tp=1,pp=1", .coordinator_flags = {"--replica-wait=0s"}});
  Process& job = cluster.StartJob(2, {"--orphan-timeout=3s"});
  ASSERT_TRUE(cluster.WaitForServing(1));
  RunningAnswer answer(cluster);
  cluster.coordinator().Signal(SIGSTOP);
  const std::optional<int> status = job.Wait(absl::Seconds(15));
  cluster.coordinator().Signal(SIGCONT);
  ASSERT_TRUE(status.has_value());
  EXPECT_NE(*status, 0);
  EXPECT_THAT(job.Output(), HasSubstr("--orphan-timeout"));
}

TEST(CoordinatorFaultTest, ANewOneTakesTheJobUpAgain) {
  Cluster cluster({.layout = "tp=2,pp=1"});
  Process& job = cluster.StartJob(2);
  ASSERT_TRUE(cluster.WaitForServing(1));
  const std::vector<pid_t> pids = Pids(cluster.ServingJob(0));
  const Answer before = cluster.Generate(GreedyRequest("ROMEO:", 20));
  {
    RunningAnswer lost(cluster);
    cluster.coordinator().Signal(SIGKILL);
    cluster.coordinator().Wait(absl::Seconds(5));
  }
  cluster.RestartCoordinator();  // returns when it listens
  EXPECT_TRUE(cluster.coordinator().WaitForOutput("serves with 1 replica", absl::Seconds(2)));
  ASSERT_TRUE(cluster.WaitForServing(1));
  EXPECT_EQ(Pids(cluster.ServingJob(0)), pids);
  const Answer after = cluster.Generate(GreedyRequest("ROMEO:", 20));
  EXPECT_TRUE(after.status.ok()) << after.status.error_message();
  EXPECT_EQ(after.tokens, before.tokens);
  // The leader has spoken now, and keeps nothing of the answer that was lost.
  EXPECT_TRUE(cluster.WaitForStatus(
      [&](const auto& status) {
        if (status.jobs_size() != 1 || status.jobs(0).replicas_size() != 1) return false;
        const cluster::v1::ReplicaLoad& load = status.jobs(0).replicas(0).load();
        return load.steps() >= static_cast<int64_t>(before.tokens.size() + after.tokens.size()) &&
               load.running() + load.waiting() + load.used_pages() == 0 &&
               load.free_pages() + load.cached_pages() == load.total_pages();
      },
      kBound))
      << cluster.Status().DebugString();
  cluster.coordinator().Signal(SIGTERM);
  EXPECT_EQ(job.Wait(absl::Seconds(20)), 0) << job.Output();
}

}  // namespace
}  // namespace skein::testing
