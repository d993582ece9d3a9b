// Tests how a coordinator that gets a signal ends: running answers finish first, a second signal
// ends at once.
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "tests/cluster/cluster.h"
#include "tests/cluster/running_answer.h"
#include "tests/fault/faults.h"

namespace skein::testing {
namespace {

TEST(DrainTest, RunningAnswersFinishAndEveryoneLeavesWithZero) {
  Cluster cluster({.layout = "tp=2,pp=1", .worker = kFaultyWorker});
  Process& job = cluster.StartJob(2, {"--slow=3ms"});  // it is to end
  ASSERT_TRUE(cluster.WaitForServing(1));
  RunningAnswer answer(cluster);
  cluster.coordinator().Signal(SIGTERM);
  ASSERT_TRUE(WaitUntil(absl::Seconds(5), [&] {
    return cluster.Generate(GreedyRequest("x", 2)).status.error_code() ==
           grpc::StatusCode::UNAVAILABLE;
  }));
  const absl::Time refused = absl::Now();
  answer.Join();
  EXPECT_TRUE(answer.status().ok()) << answer.status().error_message();
  EXPECT_GT(answer.done(), refused);
  EXPECT_EQ(cluster.coordinator().Wait(absl::Seconds(30)), 0);
  EXPECT_EQ(job.Wait(absl::Seconds(30)), 0) << job.Output();
}

// Signals that come together count as one: repeats one until the process has ended.
std::optional<int> SignalUntilItEnds(Process& process, int signal, absl::Duration timeout) {
  std::optional<int> status;
  WaitUntil(timeout, [&] {
    status = process.Wait(absl::ZeroDuration());
    if (!status.has_value()) process.Signal(signal);
    return status.has_value();
  });
  return status;
}

// The answer cannot end: a rank stops in its eleventh step.
TEST(DrainTest, ASecondSignalEndsAtOnce) {
  Cluster cluster({.layout = "tp=2,pp=1", .worker = kFaultyWorker});
  cluster.StartJob(
      2, {"--fault=tp of replica 0, stage 0:1:before:all-reduce 200", "--step-timeout=10m"});
  ASSERT_TRUE(cluster.WaitForServing(1));
  RunningAnswer answer(cluster);
  cluster.coordinator().Signal(SIGTERM);
  ASSERT_TRUE(cluster.coordinator().WaitForOutput("draining", absl::Seconds(5)));
  EXPECT_EQ(SignalUntilItEnds(cluster.coordinator(), SIGTERM, absl::Seconds(3)), 1);
  answer.Join();
  EXPECT_FALSE(answer.status().ok());
}

TEST(DrainTest, ASecondSignalEndsACoordinatorThatWaitsForItsClients) {
  Cluster cluster({});
  const auto stub = cluster::v1::Cluster::NewStub(cluster.channel());
  grpc::ClientContext context;
  const auto silent = stub->Attach(&context);  // holds the server up for as long as it may
  cluster.Status();                            // comes after it
  cluster.coordinator().Signal(SIGTERM);
  ASSERT_TRUE(cluster.coordinator().WaitForOutput("drained", absl::Seconds(10)));
  // 0 if it had waited.
  EXPECT_EQ(SignalUntilItEnds(cluster.coordinator(), SIGTERM, absl::Seconds(3)), 1);
  context.TryCancel();
}

// Whether a process is the program, and not the shell or the runtime before it, and blocks it.
bool BlocksSignal(pid_t pid, const std::string& program, int signal) {
  std::ifstream status(absl::StrCat("/proc/", pid, "/status"));
  for (std::string name; status >> name;) {
    if (name == "Name:") {
      std::string is;
      if (status >> is; is != program) return false;
    } else if (name == "SigBlk:") {
      uint64_t mask = 0;
      status >> std::hex >> mask;
      return ((mask >> (signal - 1)) & 1) != 0;
    }
  }
  return false;
}

// It logs into a pipe that is full, and so never gets beyond its first line.
TEST(DrainTest, ASecondSignalEndsACoordinatorThatHangsWhileItLoads) {
  const std::string pipe = absl::StrCat(::testing::TempDir(), "/full");
  std::filesystem::remove(pipe);
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  const int end = open(pipe.c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC);
  ASSERT_GE(end, 0);
  const std::string page(4096, 'x');
  while (write(end, page.data(), page.size()) > 0) {
  }
  Process coordinator({.name = "coordinator",
                       .argv = {"sh", "-c",
                                "exec coordinator/coordinator --model=checkpoints/bard "
                                "--listen=127.0.0.1:0 >\"$FULL\" 2>&1"},
                       .environment = {{"FULL", pipe}}});
  // Twice: the start of a thread blocks all signals, too, for a moment.
  ASSERT_TRUE(WaitUntil(absl::Seconds(20), [&] {
    const auto blocks = [&] { return BlocksSignal(coordinator.pid(), "coordinator", SIGTERM); };
    if (!blocks()) return false;
    absl::SleepFor(absl::Milliseconds(20));
    return blocks();
  }));
  coordinator.Signal(SIGTERM);
  EXPECT_FALSE(coordinator.Wait(absl::Milliseconds(300)).has_value());
  EXPECT_EQ(SignalUntilItEnds(coordinator, SIGINT, absl::Seconds(3)), 1);
  close(end);
}

}  // namespace
}  // namespace skein::testing
