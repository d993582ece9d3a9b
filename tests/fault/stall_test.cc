// Leaders that hold up their replica though their heartbeats come: a thread that is frozen, a
// network that holds bytes back. Real processes.
#include <sys/ptrace.h>
#include <sys/wait.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <optional>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/cluster/cluster.h"
#include "tests/cluster/proxy.h"

namespace skein::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// How often the thread went to sleep; nothing while it is awake.
std::optional<int64_t> SleepsOf(pid_t thread) {
  std::ifstream file(absl::StrCat("/proc/", thread, "/status"));
  bool asleep = false;
  int64_t sleeps = 0;
  for (std::string line; std::getline(file, line);) {
    if (absl::StartsWith(line, "State:")) asleep = absl::StrContains(line, "S (sleeping)");
    absl::string_view count = line;
    if (!absl::ConsumePrefix(&count, "voluntary_ctxt_switches:")) continue;
    EXPECT_TRUE(absl::SimpleAtoi(count, &sleeps)) << line;
  }
  return asleep ? std::make_optional(sleeps) : std::nullopt;
}

// Stops one thread of a process, and no other, for as long as it lives. It is one that waits for
// work again and again: inside a write it would hold up heartbeats, and be lost as silent.
class FrozenThread {
 public:
  explicit FrozenThread(pid_t thread) : thread_(thread) {
    const absl::Time until = absl::Now() + absl::Seconds(20);
    std::optional<int64_t> first, now;
    while (!(now.has_value() && *now >= *first + 3) && absl::Now() < until) {
      absl::SleepFor(absl::Milliseconds(20));
      now = SleepsOf(thread_);
      if (!first.has_value()) first = now;
    }
    EXPECT_TRUE(now.has_value() && *now >= *first + 3) << "the thread never waits for work";
    EXPECT_EQ(ptrace(PTRACE_SEIZE, thread_, nullptr, nullptr), 0) << strerror(errno);
    EXPECT_EQ(ptrace(PTRACE_INTERRUPT, thread_, nullptr, nullptr), 0) << strerror(errno);
    int status = 0;
    EXPECT_EQ(waitpid(thread_, &status, __WALL), thread_) << strerror(errno);
  }
  ~FrozenThread() { ptrace(PTRACE_DETACH, thread_, nullptr, nullptr); }
  FrozenThread(const FrozenThread&) = delete;

 private:
  const pid_t thread_;
};

class StallTest : public ::testing::Test {
 protected:
  // The job of that id is lost soon; why.
  std::string WhyLost(const std::string& id) {
    std::string detail;
    EXPECT_TRUE(cluster_.WaitForStatus(
        [&](const cluster::v1::ClusterStatus& status) {
          for (const auto& job : status.jobs()) {
            if (job.job_id() == id && job.state() == "lost") detail = job.detail();
          }
          return !detail.empty();
        },
        absl::Seconds(20)));
    return detail;
  }

  // Requests until one was sent to the job that is held up, and moved: all are answered alike.
  void ExpectAnswersUntilLost(const std::string& id, const Answer& want) {
    const absl::Time until = absl::Now() + absl::Seconds(30);
    bool lost = false;
    while (!lost && absl::Now() < until) {
      const Answer got = cluster_.Generate(GreedyRequest("ROMEO:", 20), absl::Seconds(30));
      ASSERT_TRUE(got.status.ok()) << got.status.error_message();
      EXPECT_EQ(got.text, want.text);
      const cluster::v1::ClusterStatus status = cluster_.Status();
      for (const auto& job : status.jobs()) {
        lost |= job.job_id() == id && job.state() == "lost";
      }
    }
    EXPECT_TRUE(lost);
  }

  Cluster cluster_{{.layout = "tp=1,pp=1"}};
};

TEST_F(StallTest, AFrozenSchedulerIsNamedAndItsRequestsMove) {
  cluster_.StartJob(1);
  ASSERT_TRUE(cluster_.WaitForServing(1));
  const Answer want = cluster_.Generate(GreedyRequest("ROMEO:", 20));
  ASSERT_TRUE(want.status.ok());
  const cluster::v1::JobStatus job = cluster_.ServingJob(0);
  cluster_.StartJob(1);
  ASSERT_TRUE(cluster_.WaitForServing(2));
  // A worker schedules on its first thread.
  const FrozenThread scheduler(job.ranks(0).pid());
  ExpectAnswersUntilLost(job.job_id(), want);
  EXPECT_THAT(WhyLost(job.job_id()),
              AllOf(HasSubstr(absl::StrCat("(pid ", job.ranks(0).pid(), ") is lost")),
                    ::testing::AnyOf(HasSubstr("its thread 'scheduler' has not moved for"),
                                     HasSubstr("it has not taken up what was sent to it"))));
}

TEST_F(StallTest, AnIdleLeaderIsWatchedToo) {
  cluster_.StartJob(1);
  ASSERT_TRUE(cluster_.WaitForServing(1));
  const cluster::v1::JobStatus job = cluster_.ServingJob(0);
  const FrozenThread scheduler(job.ranks(0).pid());
  const absl::Time begin = absl::Now();
  EXPECT_THAT(WhyLost(job.job_id()), HasSubstr("its thread 'scheduler' has not moved for"));
  EXPECT_GT(absl::Now() - begin, absl::Seconds(4));
}

TEST_F(StallTest, BytesThatAreHeldBackLoseTheJobAndItsRequestsMove) {
  Proxy network(cluster_.address());
  cluster_.StartJob(1, {}, network.address());
  ASSERT_TRUE(cluster_.WaitForServing(1));
  const Answer want = cluster_.Generate(GreedyRequest("ROMEO:", 20));
  ASSERT_TRUE(want.status.ok());
  const cluster::v1::JobStatus job = cluster_.ServingJob(0);
  cluster_.StartJob(1);
  ASSERT_TRUE(cluster_.WaitForServing(2));
  network.HoldBack();
  ExpectAnswersUntilLost(job.job_id(), want);
  EXPECT_THAT(WhyLost(job.job_id()), HasSubstr("it has not taken up what was sent to it"));
}

}  // namespace
}  // namespace skein::testing
