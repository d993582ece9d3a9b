// What happens when ranks, jobs and coordinators die: real processes, real signals.
#include <signal.h>
#include <unistd.h>

#include <filesystem>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/cluster/cluster.h"

namespace skein::testing {
namespace {

using ::testing::HasSubstr;

// The bound that is promised to users for every loss.
constexpr absl::Duration kBound = absl::Seconds(5);
constexpr int kLong = 900;  // tokens: an answer that is still running when the fault comes

std::set<std::string> SharedMemory() {
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator("/dev/shm")) {
    names.insert(entry.path().filename().string());
  }
  return names;
}

bool WaitUntil(absl::Duration timeout, const std::function<bool()>& predicate) {
  const absl::Time deadline = absl::Now() + timeout;
  while (!predicate()) {
    if (absl::Now() > deadline) return false;
    absl::SleepFor(absl::Milliseconds(20));
  }
  return true;
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

std::string HostName() {
  char name[256] = {};
  gethostname(name, sizeof(name) - 1);
  return name;
}

// A request in the middle of its answer, on a thread of its own.
class RunningAnswer {
 public:
  explicit RunningAnswer(Cluster& cluster) {
    thread_ = std::thread([this, &cluster] {
      grpc::ClientContext context;
      auto reader = cluster.inference().Generate(&context, GreedyRequest("ROMEO:", kLong));
      v1::GenerateEvent event;
      while (reader->Read(&event)) {
        if (event.has_tokens()) tokens_ += event.tokens().tokens_size();
        if (event.has_error()) error_ = event.error().message();
      }
      status_ = reader->Finish();
      done_ = absl::Now();
    });
    EXPECT_TRUE(WaitUntil(absl::Seconds(30), [this] { return tokens_ > 3; }));
  }
  ~RunningAnswer() {
    if (thread_.joinable()) thread_.join();
  }
  void Join() { thread_.join(); }
  const grpc::Status& status() const { return status_; }
  const std::string& error() const { return error_; }
  absl::Time done() const { return done_; }
  int tokens() const { return tokens_; }

 private:
  std::thread thread_;
  std::atomic<int> tokens_{0};
  grpc::Status status_;
  std::string error_;
  absl::Time done_;
};

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
  Cluster cluster({.layout = "tp=2,pp=2"});
  Process& job = cluster.StartJob(4);
  ASSERT_TRUE(cluster.WaitForServing(1));
  const cluster::v1::JobStatus victim_job = cluster.ServingJob(0);
  RunningAnswer lost(cluster);  // on the only job there is
  Process& other = cluster.StartJob(4);
  ASSERT_TRUE(cluster.WaitForServing(2));
  RunningAnswer kept(cluster);  // on the idle job

  const int victim = GetParam().victim;
  const absl::Time fault = absl::Now();
  ASSERT_EQ(kill(victim_job.ranks(victim).pid(), GetParam().signal), 0);
  const std::optional<int> exit_status = job.Wait(kBound);
  ASSERT_TRUE(exit_status.has_value()) << "mpirun still runs";
  EXPECT_NE(*exit_status, 0);
  lost.Join();
  EXPECT_LT(lost.done() - fault, kBound);
  EXPECT_EQ(lost.status().error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_FALSE(lost.error().empty());  // the last event said so, too
  EXPECT_TRUE(WaitUntil(kBound, [&] { return NoneAlive(Pids(victim_job)); }));
  const std::string who = absl::StrCat("rank ", victim, " on ", HostName(), " (pid ",
                                       victim_job.ranks(victim).pid(), ") is lost");
  EXPECT_THAT(cluster.coordinator().Output(), HasSubstr(who));
  EXPECT_THAT(lost.error(), HasSubstr(who));

  kept.Join();
  EXPECT_TRUE(kept.status().ok()) << kept.status().error_message();
  EXPECT_FALSE(other.Wait(absl::ZeroDuration()).has_value());
  cluster.StartJob(4);
  ASSERT_TRUE(cluster.WaitForServing(2));
  EXPECT_TRUE(cluster.Generate(GreedyRequest("JULIET:", 5)).status.ok());

  cluster.coordinator().Signal(SIGTERM);
  EXPECT_EQ(cluster.coordinator().Wait(absl::Seconds(20)), 0);
  EXPECT_EQ(other.Wait(absl::Seconds(20)), 0);
  EXPECT_EQ(SharedMemory(), shared_memory);
}

INSTANTIATE_TEST_SUITE_P(Faults, RankFaultTest,
                         ::testing::Values(FaultCase{"kill_leader", SIGKILL, 0},
                                           FaultCase{"kill_last", SIGKILL, 3},
                                           FaultCase{"stop_leader", SIGSTOP, 0},
                                           FaultCase{"stop_shard", SIGSTOP, 1}),
                         [](const auto& info) { return info.param.name; });

TEST(MpirunFaultTest, KillOfMpirunEndsEveryRank) {
  const std::set<std::string> shared_memory = SharedMemory();
  Cluster cluster({.layout = "tp=2,pp=2"});
  Process& job = cluster.StartJob(4);
  ASSERT_TRUE(cluster.WaitForServing(1));
  const std::vector<pid_t> pids = Pids(cluster.ServingJob(0));
  RunningAnswer answer(cluster);
  job.Signal(SIGKILL);
  EXPECT_TRUE(WaitUntil(kBound, [&] { return NoneAlive(pids); }));
  EXPECT_EQ(SharedMemory(), shared_memory);
  answer.Join();
  EXPECT_EQ(answer.status().error_code(), grpc::StatusCode::UNAVAILABLE);
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

TEST(CoordinatorFaultTest, ServingWorkersOutliveItForTheOrphanTimeoutOnly) {
  Cluster cluster({.layout = "tp=1,pp=1"});
  Process& job = cluster.StartJob(2, {"--orphan-timeout=3s"});
  ASSERT_TRUE(cluster.WaitForServing(1));
  cluster.coordinator().Signal(SIGKILL);
  cluster.coordinator().Wait(absl::Seconds(5));
  const std::optional<int> status = job.Wait(absl::Seconds(15));
  ASSERT_TRUE(status.has_value());
  EXPECT_NE(*status, 0);
}

TEST(CoordinatorFaultTest, AStoppedOneIsAsGoodAsNone) {
  Cluster cluster({.layout = "tp=1,pp=1"});
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
  cluster.RestartCoordinator();
  ASSERT_TRUE(cluster.WaitForServing(1));
  EXPECT_EQ(Pids(cluster.ServingJob(0)), pids);
  const Answer after = cluster.Generate(GreedyRequest("ROMEO:", 20));
  EXPECT_TRUE(after.status.ok()) << after.status.error_message();
  EXPECT_EQ(after.tokens, before.tokens);
  cluster.coordinator().Signal(SIGTERM);
  EXPECT_EQ(job.Wait(absl::Seconds(20)), 0) << job.Output();
}

TEST(CancelTest, ADeadlineFreesThePagesAtOnce) {
  Cluster cluster({.layout = "tp=1,pp=2"});
  cluster.StartJob(2);
  ASSERT_TRUE(cluster.WaitForServing(1));
  const auto free_pages = [&] { return cluster.ServingJob(0).replicas(0).load().free_pages(); };
  const int64_t total = cluster.ServingJob(0).replicas(0).load().total_pages();
  ASSERT_GT(total, 0);
  EXPECT_EQ(free_pages(), total);
  int64_t least = total;
  std::thread request([&] {
    const Answer answer = cluster.Generate(GreedyRequest("ROMEO:", kLong), absl::Milliseconds(300));
    EXPECT_EQ(answer.status.error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  });
  const absl::Time deadline = absl::Now() + absl::Milliseconds(250);
  while (absl::Now() < deadline) least = std::min(least, free_pages());
  EXPECT_LE(least, total - kLong / 16);
  request.join();
  EXPECT_TRUE(WaitUntil(absl::Seconds(1), [&] { return free_pages() == total; }));
}

TEST(DrainTest, RunningAnswersFinishAndEveryoneLeavesWithZero) {
  Cluster cluster({.layout = "tp=2,pp=1"});
  Process& job = cluster.StartJob(2);
  ASSERT_TRUE(cluster.WaitForServing(1));
  RunningAnswer answer(cluster);
  cluster.coordinator().Signal(SIGTERM);
  ASSERT_TRUE(WaitUntil(absl::Seconds(5), [&] {
    return cluster.Generate(GreedyRequest("x", 2)).status.error_code() ==
           grpc::StatusCode::UNAVAILABLE;
  }));
  answer.Join();
  EXPECT_TRUE(answer.status().ok()) << answer.status().error_message();
  EXPECT_EQ(cluster.coordinator().Wait(absl::Seconds(30)), 0);
  EXPECT_EQ(job.Wait(absl::Seconds(30)), 0) << job.Output();
}

TEST(DrainTest, ASecondSignalEndsAtOnce) {
  Cluster cluster({.layout = "tp=1,pp=1"});
  cluster.StartJob(1);
  ASSERT_TRUE(cluster.WaitForServing(1));
  RunningAnswer answer(cluster);
  cluster.coordinator().Signal(SIGTERM);
  ASSERT_TRUE(cluster.coordinator().WaitForOutput("draining", absl::Seconds(5)));
  absl::SleepFor(absl::Milliseconds(200));  // signals that come together count as one
  const absl::Time second = absl::Now();
  cluster.coordinator().Signal(SIGTERM);
  EXPECT_TRUE(cluster.coordinator().Wait(absl::Seconds(5)).has_value());
  EXPECT_LT(absl::Now() - second, absl::Seconds(3));
  answer.Join();
  EXPECT_FALSE(answer.status().ok());
}

TEST(RefusalTest, LayoutsThatCannotBeAreRefusedBeforeLoading) {
  struct Case {
    std::string layout;
    int ranks;
    std::vector<std::string> says;
  };
  for (const Case& c : {Case{"tp=5,pp=1", 5, {"5", "4"}}, Case{"tp=1,pp=9", 9, {"9", "8"}}}) {
    SCOPED_TRACE(c.layout);
    Cluster cluster({.layout = c.layout});
    Process& job = cluster.StartJob(c.ranks);
    const std::optional<int> status = job.Wait(absl::Seconds(30));
    ASSERT_TRUE(status.has_value());
    EXPECT_NE(*status, 0);
    for (const std::string& text : c.says) EXPECT_THAT(job.Output(), HasSubstr(text));
    EXPECT_THAT(job.Output(), HasSubstr("tp="));  // layouts that work
    EXPECT_THAT(job.Output(), ::testing::Not(HasSubstr("loaded")));
  }
}

TEST(RefusalTest, AMissingOrDifferentModelNamesNodeAndPath) {
  Cluster cluster({.layout = "tp=1,pp=1"});
  const std::string root = cluster.scratch() + "/models";
  std::filesystem::create_directories(root);
  Process& missing = cluster.StartJob(1, {"--model-root=" + root});
  ASSERT_TRUE(missing.Wait(absl::Seconds(20)).has_value());
  EXPECT_THAT(missing.Output(), HasSubstr(root + "/bard"));
  EXPECT_THAT(missing.Output(), HasSubstr("rank 0 on " + HostName()));

  std::filesystem::copy("checkpoints/bard", root + "/bard",
                        std::filesystem::copy_options::recursive);
  std::filesystem::permissions(root + "/bard/config.json", std::filesystem::perms::owner_write,
                               std::filesystem::perm_options::add);
  FILE* config = std::fopen((root + "/bard/config.json").c_str(), "a");
  ASSERT_NE(config, nullptr);
  std::fputs("\n", config);
  std::fclose(config);
  Process& different = cluster.StartJob(1, {"--model-root=" + root});
  ASSERT_TRUE(different.Wait(absl::Seconds(20)).has_value());
  EXPECT_THAT(different.Output(), HasSubstr(root + "/bard"));
  EXPECT_THAT(different.Output(), HasSubstr("another one"));
  EXPECT_THAT(cluster.coordinator().Output(), HasSubstr(root + "/bard"));
}

}  // namespace
}  // namespace skein::testing
