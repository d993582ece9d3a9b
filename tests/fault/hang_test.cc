// Ranks that hold up the others, each in its own way, and how they are named: real processes.
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/cluster/cluster.h"
#include "tests/cluster/running_answer.h"
#include "tests/cluster/test_device.h"

namespace skein::testing {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;

constexpr absl::Duration kBound = absl::Seconds(5);  // for a silent rank to be named

std::string DetailOfLostJob(Cluster& cluster) {
  const cluster::v1::ClusterStatus status = cluster.Status();
  for (const auto& job : status.jobs()) {
    if (job.state() == "lost") return job.detail();
  }
  return "";
}

// Stops one thread of a process, which lives on otherwise, until this object ends or the process
// does. Used by one thread.
class StoppedThread {
 public:
  explicit StoppedThread(pid_t thread) : thread_(thread) {
    if (ptrace(PTRACE_SEIZE, thread, nullptr, nullptr) != 0) {
      error_ = strerror(errno);
      return;
    }
    seized_ = true;
    int status = 0;
    if (ptrace(PTRACE_INTERRUPT, thread, nullptr, nullptr) != 0 ||
        waitpid(thread, &status, __WALL) != thread || !WIFSTOPPED(status)) {
      error_ = "the thread did not stop";
    }
  }
  ~StoppedThread() { Continue(); }
  const std::string& error() const { return error_; }

  void Continue() {
    if (std::exchange(seized_, false)) ptrace(PTRACE_DETACH, thread_, nullptr, nullptr);
  }
  // The parent of a process that has ended hears of it only after us.
  void AwaitDeath() {
    int status = 0;
    while (waitpid(thread_, &status, __WALL) == thread_ && !WIFEXITED(status) &&
           !WIFSIGNALED(status)) {
    }
    seized_ = false;
  }

 private:
  const pid_t thread_;
  bool seized_ = false;
  std::string error_;
};

TEST(HangTest, AStoppedRankIsNamedWithItsOperationAndThoseWhoWait) {
  if (StepsTakeTurns(4)) GTEST_SKIP() << "needs a GPU for each of 4 ranks";
  Cluster cluster({.layout = "tp=2,pp=2",
                   .coordinator_flags = {"--replica-wait=0s"},
                   .worker = "tests/fault/faulty_worker"});
  // Its answers take more than half a minute.
  Process& job = cluster.StartJob(4, {"--slow=20ms"});
  ASSERT_TRUE(cluster.WaitForServing(1));
  const cluster::v1::JobStatus serving = cluster.ServingJob(0);
  {
    RunningAnswer answer(cluster);
    const absl::Time fault = absl::Now();
    ASSERT_EQ(kill(serving.ranks(3).pid(), SIGSTOP), 0);
    const std::string who = absl::StrCat("rank 3 on ", HostName(), " (pid ", serving.ranks(3).pid(),
                                         ") is lost: it has been silent");
    EXPECT_TRUE(cluster.coordinator().WaitForOutput(who, kBound));
    EXPECT_LT(absl::Now() - fault, kBound);
    answer.Join();
    EXPECT_THAT(answer.error(), HasSubstr(who));
  }
  // Rank 2 waits for its shard; ranks 0 and 1, which are a stage before, for its tokens.
  const std::string detail = DetailOfLostJob(cluster);
  EXPECT_THAT(detail,
              AllOf(ContainsRegex("it was last heard (in|computing|waiting for) "),
                    ContainsRegex("rank 2 has waited in all-(reduce|gather) [0-9]+ of 'tp of "
                                  "replica 0, stage 1' \\(step [0-9]+\\) for [0-9.]+ s")));
  EXPECT_TRUE(cluster.coordinator().WaitForOutput(detail, kBound));
  EXPECT_TRUE(job.Wait(kBound).has_value());
}

// As a follower's first thread does that waits for an order. Another one waits for MPI, on a futex,
// too.
bool WaitUntilItSleepsOnAFutex(pid_t thread, absl::Duration timeout) {
  const absl::Time deadline = absl::Now() + timeout;
  while (absl::Now() < deadline) {
    int64_t number = -1;  // "running" is none
    std::ifstream(absl::StrCat("/proc/", thread, "/syscall")) >> number;
    if (number == SYS_futex) return true;
    absl::SleepFor(absl::Milliseconds(1));
  }
  return false;
}

// Its heartbeats go on: only the thread that hears orders is stopped, before one comes.
TEST(HangTest, ARankThatLivesButNeverComesIsNamedAfterTheDeadline) {
  Cluster cluster({.layout = "tp=2,pp=1", .coordinator_flags = {"--replica-wait=0s"}});
  Process& job = cluster.StartJob(2, {"--step-timeout=4s"});
  ASSERT_TRUE(cluster.WaitForServing(1));
  ASSERT_TRUE(cluster.Generate(GreedyRequest("ROMEO:", 5)).status.ok());
  const pid_t victim = cluster.ServingJob(0).ranks(1).pid();  // a follower's first thread listens
  // It may end the last step after the answer has come.
  ASSERT_TRUE(WaitUntilItSleepsOnAFutex(victim, kBound));
  StoppedThread stopped(victim);
  ASSERT_EQ(stopped.error(), "") << "no thread can be stopped";
  const absl::Time fault = absl::Now();
  std::string error;
  std::thread request([&] { error = cluster.Generate(GreedyRequest("JULIET:", kLong)).error; });
  const std::string who =
      absl::StrCat("rank 1 on ", HostName(), " (pid ", victim, ") is lost: it never entered ");
  const bool named = cluster.coordinator().WaitForOutput(who, absl::Seconds(4) + kBound);
  EXPECT_TRUE(named);
  EXPECT_GT(absl::Now() - fault, absl::Seconds(4));  // longer than silence is forgiven
  if (named) stopped.AwaitDeath();
  stopped.Continue();
  request.join();
  EXPECT_THAT(error, HasSubstr(who));
  const std::string operation = "all-(reduce|gather) [0-9]+ of 'tp of replica 0, stage 0'";
  EXPECT_THAT(DetailOfLostJob(cluster),
              AllOf(ContainsRegex("it never entered " + operation + " \\(step [0-9]+\\)"),
                    HasSubstr("it was last heard waiting for an order"),
                    ContainsRegex("rank 0 has waited in " + operation +
                                  " \\(step [0-9]+\\) for [4-9]\\.[0-9] s, past the deadline of "
                                  "4\\.0 s")));
  const std::optional<int> status = job.Wait(kBound);
  ASSERT_TRUE(status.has_value());
  EXPECT_NE(*status, 0);
}

struct PipelineFault {
  int rank;
  std::string fault;  // of the faulty worker
  std::string what;
};

class ShortDeadlineTest : public ::testing::TestWithParam<PipelineFault> {};

// Ranks at both sides wait for it, as long as each other and shorter than a stuck one is known for.
TEST_P(ShortDeadlineTest, NamesTheRightOneOfThreeStages) {
  if (StepsTakeTurns(3)) GTEST_SKIP() << "needs a GPU for each of 3 ranks";
  const PipelineFault& fault = GetParam();
  Cluster cluster({.layout = "tp=1,pp=3",
                   .coordinator_flags = {"--replica-wait=0s"},
                   .worker = "tests/fault/faulty_worker"});
  Process& job = cluster.StartJob(3, {"--step-timeout=4s", "--fault=" + fault.fault});
  ASSERT_TRUE(cluster.WaitForServing(1));
  const auto rank = cluster.ServingJob(0).ranks(fault.rank);
  const std::string error = cluster.Generate(GreedyRequest("ROMEO:", kLong)).error;
  EXPECT_THAT(error, HasSubstr(absl::StrCat("rank ", fault.rank, " on ", HostName(), " (pid ",
                                            rank.pid(), ") is lost: it ", fault.what)));
  EXPECT_TRUE(job.Wait(kBound).has_value());
}

INSTANTIATE_TEST_SUITE_P(
    Pipeline, ShortDeadlineTest,
    ::testing::Values(
        PipelineFault{0, "hop 0 of replica 0, shard 0:0:before:send 5", "never entered send 5 to"},
        PipelineFault{1, "hop 0 of replica 0, shard 0:1:inside:receive 5",
                      "entered receive 5 from"},
        PipelineFault{1, "hop 1 of replica 0, shard 0:1:inside:send 5", "entered send 5 to"},
        PipelineFault{2, "tokens of replica 0:2:before:send 5", "never entered send 5 to rank 0"}),
    [](const auto& info) { return absl::StrCat("rank_", info.param.rank, "_", info.index); });

// Returns -1 where no thread of the process has that name.
pid_t ThreadNamed(pid_t process, std::string_view name) {
  const std::string tasks = absl::StrCat("/proc/", process, "/task");
  for (const auto& entry : std::filesystem::directory_iterator(tasks)) {
    std::ifstream file(entry.path() / "comm");
    std::string line;
    if (std::getline(file, line) && line == name) return std::stoi(entry.path().filename());
  }
  return -1;
}

TEST(HangTest, AJobOfOneRankThatHangsEndsAfterTheDeadline) {
  Cluster cluster({.layout = "tp=1,pp=1", .coordinator_flags = {"--replica-wait=0s"}});
  Process& job = cluster.StartJob(1, {"--step-timeout=4s"});
  ASSERT_TRUE(cluster.WaitForServing(1));
  const pid_t rank = cluster.ServingJob(0).ranks(0).pid();
  ASSERT_TRUE(cluster.Generate(GreedyRequest("ROMEO:", 5)).status.ok());
  // The pool's threads would hold up nothing: those that are there do their tasks.
  const pid_t victim = ThreadNamed(rank, "steps");
  // It may end the last step after the answer has come.
  ASSERT_TRUE(WaitUntilItSleepsOnAFutex(victim, kBound));
  StoppedThread stopped(victim);
  ASSERT_EQ(stopped.error(), "") << "no thread can be stopped";
  std::string error;
  std::thread request([&] { error = cluster.Generate(GreedyRequest("JULIET:", kLong)).error; });
  const std::string who =
      absl::StrCat("rank 0 on ", HostName(), " (pid ", rank, ") is lost: rank 0 on ", HostName(),
                   ": a step was not over after 4s");
  const bool named = cluster.coordinator().WaitForOutput(who, absl::Seconds(20));
  EXPECT_TRUE(named);
  if (named) stopped.AwaitDeath();
  stopped.Continue();
  request.join();
  EXPECT_THAT(error, HasSubstr(who));
  const std::optional<int> status = job.Wait(kBound);
  ASSERT_TRUE(status.has_value());
  EXPECT_NE(*status, 0);
}

}  // namespace
}  // namespace skein::testing
