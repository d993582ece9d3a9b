// One suite over shared memory, TCP, and both at once. Ranks are threads where only messages
// matter, and processes where a rank is killed, stopped or measured.
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "base/await_sleep.h"
#include "base/test_util.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "parallel/comm/control/fork_group.h"
#include "parallel/comm/control/make_control_channel.h"
#include "parallel/comm/inprocess/inprocess.h"

namespace skein::comm {
namespace {

using absl::StatusCode;
using testing::AllOf;
using testing::HasSubstr;

constexpr int kRanks = 4;

absl::Time In(absl::Duration duration) { return absl::Now() + duration; }
absl::Time Soon() { return In(absl::Seconds(30)); }  // never reached by a good test

enum class Over { kShm, kTcp, kMixed };

// Every rank on a host of its own, all on one, or ranks 0 and 2 on one and the others on theirs.
ControlOptions OptionsFor(Over over, int rank) {
  std::string host = "host a";
  if (over == Over::kTcp) host = absl::StrCat("host of ", rank);
  if (over == Over::kMixed && rank % 2 == 1) host = absl::StrCat("host of ", rank);
  ControlOptions options;
  options.host = HostIdentity{host, "boot"};
  return options;
}

class ControlChannelTest : public testing::TestWithParam<Over> {
 protected:
  // Calls `leader` and `follower` on threads with a channel each.
  void OnThreads(const std::function<void(ControlChannel&)>& leader,
                 const std::function<void(ControlChannel&)>& follower) {
    auto group = MakeInProcessGroup(kRanks, "control");
    std::vector<std::thread> threads;
    for (auto& rank : group) {
      threads.emplace_back([&] {
        SCOPED_TRACE(absl::StrCat("rank ", rank->rank()));
        auto channel = MakeControlChannel(*rank, OptionsFor(GetParam(), rank->rank()));
        SKEIN_ASSERT_OK(channel);
        EXPECT_EQ((*channel)->rank(), rank->rank());
        EXPECT_EQ((*channel)->size(), kRanks);
        (rank->rank() == 0 ? leader : follower)(**channel);
        // Nobody's end disturbs another's test.
        SKEIN_EXPECT_OK(rank->Barrier(kHostStream));
      });
    }
    for (std::thread& thread : threads) thread.join();
  }

  // Forks kRanks - 1 processes that run `child`; this process is `parent_rank`.
  std::unique_ptr<ControlChannel> Fork(int parent_rank,
                                       const std::function<void(ControlChannel&)>& child) {
    auto group = ForkGroup::Fork(kRanks, parent_rank, &children_);
    auto channel = MakeControlChannel(*group, OptionsFor(GetParam(), group->rank()));
    if (group->rank() != parent_rank) {
      if (channel.ok()) child(**channel);
      channel = absl::CancelledError();  // closes it
      _exit(0);
    }
    SKEIN_EXPECT_OK(channel);
    return channel.ok() ? *std::move(channel) : nullptr;
  }

  void TearDown() override {
    for (pid_t child : children_) {
      if (child == 0) continue;
      kill(child, SIGKILL);
      waitpid(child, nullptr, 0);
    }
  }

  std::vector<pid_t> children_;  // [kRanks], 0 for the parent
};
INSTANTIATE_TEST_SUITE_P(Over, ControlChannelTest,
                         testing::Values(Over::kShm, Over::kTcp, Over::kMixed),
                         [](const auto& info) {
                           return info.param == Over::kShm   ? "Shm"
                                  : info.param == Over::kTcp ? "Tcp"
                                                             : "Mixed";
                         });

// Every block of 64 bytes differs.
std::string Text(int size, int seed) {
  std::string text;
  text.reserve(size + 64);
  for (int block = 0; static_cast<int>(text.size()) < size; ++block) {
    const std::string number = absl::StrCat(seed, ":", block, ";");
    text.append(number).append(64 - number.size(), static_cast<char>('a' + block % 26));
  }
  text.resize(size);
  return text;
}

TEST_P(ControlChannelTest, ManySmallMessagesArriveInOrder) {
  constexpr int kMessages = 3000;
  OnThreads(
      [&](ControlChannel& channel) {
        std::thread sender([&] {
          for (int i = 0; i < kMessages; ++i) {
            SKEIN_ASSERT_OK(channel.Broadcast(absl::StrCat("plan ", i), Soon()));
          }
        });
        std::vector<int> next(kRanks);
        for (int i = 0; i < kMessages * (kRanks - 1); ++i) {
          auto message = channel.Receive(Soon());
          SKEIN_EXPECT_OK(message);
          if (!message.ok()) break;
          EXPECT_EQ(message->bytes, absl::StrCat("result ", next[message->from]++));
        }
        EXPECT_THAT(next, testing::ElementsAre(0, kMessages, kMessages, kMessages));
        sender.join();
      },
      [&](ControlChannel& channel) {
        for (int i = 0; i < kMessages; ++i) {
          auto message = channel.Receive(Soon());
          SKEIN_ASSERT_OK(message);
          EXPECT_EQ(message->from, 0);
          EXPECT_EQ(message->bytes, absl::StrCat("plan ", i));
          SKEIN_ASSERT_OK(channel.SendToLeader(absl::StrCat("result ", i), Soon()));
        }
      });
}

TEST_P(ControlChannelTest, MessagesOfEverySizeArriveWhole) {
  const int ring = static_cast<int>(ControlOptions().ring_bytes);
  const int kSizes[] = {0, 1, 7, ring - 9, ring - 8, ring - 7, ring, ring + 1, 5 << 20, 64 << 20};
  OnThreads(
      [&](ControlChannel& channel) {
        for (int size : kSizes) {
          SKEIN_ASSERT_OK(channel.Broadcast(Text(size, 1), Soon()));
          for (int i = 1; i < kRanks; ++i) {
            auto message = channel.Receive(Soon());
            SKEIN_ASSERT_OK(message);
            EXPECT_TRUE(message->bytes == Text(size % (6 << 20), message->from)) << size;
          }
        }
        EXPECT_THAT(channel.Broadcast(std::string((64 << 20) + 1, 'x'), Soon()),
                    StatusIs(StatusCode::kInvalidArgument, HasSubstr("at most 64 MiB")));
      },
      [&](ControlChannel& channel) {
        for (int size : kSizes) {
          auto message = channel.Receive(Soon());
          SKEIN_ASSERT_OK(message);
          EXPECT_TRUE(message->bytes == Text(size, 1)) << size;
          SKEIN_ASSERT_OK(channel.SendToLeader(Text(size % (6 << 20), channel.rank()), Soon()));
        }
      });
}

TEST_P(ControlChannelTest, ADeadlinePassesAndTheNextReceiveGoesOn) {
  OnThreads(
      [&](ControlChannel& channel) {
        const absl::Time start = absl::Now();
        EXPECT_THAT(channel.Receive(In(absl::Milliseconds(50))),
                    StatusIs(StatusCode::kDeadlineExceeded, HasSubstr("'control'")));
        EXPECT_GE(absl::Now() - start, absl::Milliseconds(50));
        EXPECT_LT(absl::Now() - start, absl::Seconds(5));
        SKEIN_ASSERT_OK(channel.Broadcast(Text(20 << 20, 3), Soon()));
      },
      [&](ControlChannel& channel) {
        // Many deadlines pass in the middle of one message.
        int passed = 0;
        while (true) {
          auto message = channel.Receive(In(absl::Microseconds(200)));
          if (message.ok()) {
            EXPECT_TRUE(message->bytes == Text(20 << 20, 3));
            break;
          }
          ASSERT_THAT(message,
                      StatusIs(StatusCode::kDeadlineExceeded, HasSubstr("rank 0 on host ")));
          ++passed;
        }
        EXPECT_GT(passed, 10);
      });
}

TEST_P(ControlChannelTest, AReaderThatDoesNotReadIsNamed) {
  std::promise<void> named;
  const std::shared_future<void> was_named = named.get_future().share();
  OnThreads(
      [&](ControlChannel& channel) {
        absl::Status status;
        for (int i = 0; i < 100 && status.ok(); ++i) {
          status = channel.Broadcast(std::string(1 << 20, 'x'), In(absl::Milliseconds(300)));
        }
        // The others read; rank 2 does not.
        EXPECT_THAT(status, StatusIs(StatusCode::kDeadlineExceeded,
                                     AllOf(HasSubstr("rank 2 on host "),
                                           HasSubstr("did not take a control message"),
                                           testing::Not(HasSubstr("rank 1")))));
        EXPECT_EQ(channel.Broadcast("next", Soon()), status);
        named.set_value();
        SKEIN_EXPECT_OK(channel.Receive(Soon()));  // the other direction lives
        channel.Close();
      },
      [&](ControlChannel& channel) {
        if (channel.rank() == 2) {
          EXPECT_EQ(was_named.wait_for(std::chrono::seconds(30)), std::future_status::ready);
          SKEIN_EXPECT_OK(channel.SendToLeader("late", Soon()));
          return;
        }
        absl::Status status;
        while (status.ok()) status = channel.Receive(Soon()).status();
        EXPECT_THAT(status, StatusIs(StatusCode::kUnavailable, HasSubstr("rank 0 on host ")));
      });
}

TEST_P(ControlChannelTest, CloseWakesOwnCallsAndTellsThePeers) {
  std::promise<void> closed;
  const std::shared_future<void> was_closed = closed.get_future().share();
  OnThreads(
      [&](ControlChannel& channel) {
        SKEIN_ASSERT_OK(channel.Broadcast("last", Soon()));
        std::atomic<bool> enters = false;
        std::thread closer([&, caller = gettid()] {
          enters.wait(false);
          EXPECT_TRUE(AwaitSleep(caller));
          channel.Close();
          closed.set_value();
        });
        enters = true;
        enters.notify_one();
        EXPECT_THAT(channel.Receive(Soon()), StatusIs(StatusCode::kCancelled, HasSubstr("closed")));
        EXPECT_THAT(
            channel.Broadcast("x", Soon()),
            StatusIs(StatusCode::kCancelled, "the control channel of 'control' was closed"));
        closer.join();
      },
      [&](ControlChannel& channel) {
        // Before it is read.
        EXPECT_EQ(was_closed.wait_for(std::chrono::seconds(30)), std::future_status::ready);
        auto message = channel.Receive(Soon());
        SKEIN_ASSERT_OK(message);
        EXPECT_EQ(message->bytes, "last");
        EXPECT_THAT(channel.Receive(Soon()),
                    StatusIs(StatusCode::kUnavailable, HasSubstr("rank 0 on host ")));
      });
}

TEST_P(ControlChannelTest, OnlyTheLeaderBroadcasts) {
  OnThreads(
      [](ControlChannel& channel) {
        EXPECT_THAT(channel.SendToLeader("x", Soon()),
                    StatusIs(StatusCode::kFailedPrecondition, HasSubstr("leader")));
      },
      [](ControlChannel& channel) {
        EXPECT_THAT(channel.Broadcast("x", Soon()),
                    StatusIs(StatusCode::kFailedPrecondition, HasSubstr("leader")));
      });
}

// ---- Processes ----

TEST_P(ControlChannelTest, AKilledFollowerIsNamedAfterItsLastMessage) {
  for (int victim : {1, 2}) {  // by TCP and by memory, where both are used
    auto channel = Fork(0, [victim](ControlChannel& channel) {
      if (channel.rank() == victim) {
        channel.SendToLeader("last words", Soon()).IgnoreError();
      }
      channel.Receive(Soon()).IgnoreError();
    });
    ASSERT_NE(channel, nullptr);
    auto message = channel->Receive(Soon());
    SKEIN_ASSERT_OK(message);
    EXPECT_EQ(message->from, victim);
    kill(children_[victim], SIGKILL);
    const absl::Time killed = absl::Now();
    EXPECT_THAT(
        channel->Receive(Soon()),
        StatusIs(StatusCode::kUnavailable, HasSubstr(absl::StrCat("rank ", victim, " on host "))));
    EXPECT_LT(absl::Now() - killed, absl::Seconds(2));
    // Also while the leader sends, whatever the size.
    EXPECT_THAT(
        channel->Broadcast(std::string(8 << 20, 'x'), Soon()),
        StatusIs(StatusCode::kUnavailable, HasSubstr(absl::StrCat("rank ", victim, " on host "))));
    channel.reset();
    TearDown();
    children_.clear();
  }
}

TEST_P(ControlChannelTest, AKilledLeaderIsNamed) {
  auto channel = Fork(kRanks - 1, [](ControlChannel& channel) {
    if (channel.rank() == 0) channel.Broadcast("hello", Soon()).IgnoreError();
    channel.Receive(Soon()).IgnoreError();
    channel.Receive(Soon()).IgnoreError();
  });
  ASSERT_NE(channel, nullptr);
  SKEIN_ASSERT_OK(channel->Receive(Soon()));
  kill(children_[0], SIGKILL);
  const absl::Time killed = absl::Now();
  EXPECT_THAT(channel->Receive(Soon()),
              StatusIs(StatusCode::kUnavailable, HasSubstr("rank 0 on host ")));
  EXPECT_LT(absl::Now() - killed, absl::Seconds(2));
}

TEST_P(ControlChannelTest, AStoppedFollowerRunsIntoTheDeadlineAndMayGoOn) {
  auto channel = Fork(0, [](ControlChannel& channel) {
    while (true) {
      auto message = channel.Receive(Soon());
      if (!message.ok()) return;
      channel.SendToLeader(message->bytes, Soon()).IgnoreError();
    }
  });
  ASSERT_NE(channel, nullptr);
  kill(children_[2], SIGSTOP);
  SKEIN_ASSERT_OK(channel->Broadcast("ping", Soon()));
  SKEIN_EXPECT_OK(channel->Receive(Soon()));
  SKEIN_EXPECT_OK(channel->Receive(Soon()));
  const absl::Time start = absl::Now();
  EXPECT_THAT(channel->Receive(In(absl::Milliseconds(300))),
              StatusIs(StatusCode::kDeadlineExceeded, HasSubstr("no rank sent")));
  EXPECT_LT(absl::Now() - start, absl::Seconds(3));
  kill(children_[2], SIGCONT);
  auto message = channel->Receive(Soon());
  SKEIN_ASSERT_OK(message);
  EXPECT_EQ(message->from, 2);
}

// Of this process, all its threads.
struct Usage {
  double cpu_seconds = 0;
  int64_t sleeps = 0;  // how often a thread gave the CPU away
};

Usage UsageSoFar() {
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  return {absl::ToDoubleSeconds(absl::DurationFromTimeval(usage.ru_utime) +
                                absl::DurationFromTimeval(usage.ru_stime)),
          usage.ru_nvcsw};
}

// A rank wakes ten times a second to see whether the others live. One that looked for messages
// instead would have to wake a thousand times to find them as early as the next test wants it to.
TEST_P(ControlChannelTest, AnIdleRankUsesNoCpuAndHardlyWakes) {
  auto channel = Fork(0, [](ControlChannel& channel) {
    const Usage before = UsageSoFar();
    channel.Receive(Soon()).IgnoreError();
    const Usage now = UsageSoFar();
    const std::string used =
        absl::StrCat(now.cpu_seconds - before.cpu_seconds, " ", now.sleeps - before.sleeps);
    channel.SendToLeader(used, Soon()).IgnoreError();
    channel.Receive(Soon()).IgnoreError();
  });
  ASSERT_NE(channel, nullptr);
  const Usage before = UsageSoFar();
  const absl::Time start = absl::Now();
  EXPECT_THAT(channel->Receive(In(absl::Seconds(1))),
              StatusIs(StatusCode::kDeadlineExceeded, testing::_));
  const double waited = absl::ToDoubleSeconds(absl::Now() - start);
  const Usage now = UsageSoFar();
  double most = (now.cpu_seconds - before.cpu_seconds) / waited;
  int64_t most_sleeps = now.sleeps - before.sleeps;
  SKEIN_ASSERT_OK(channel->Broadcast("report", Soon()));
  for (int i = 1; i < kRanks; ++i) {
    auto message = channel->Receive(Soon());
    SKEIN_ASSERT_OK(message);
    const std::vector<std::string> used = absl::StrSplit(message->bytes, ' ');
    most = std::max(most, std::stod(used.at(0)) / waited);
    most_sleeps = std::max<int64_t>(most_sleeps, std::stoll(used.at(1)));
  }
  EXPECT_LT(most, 0.02);
  EXPECT_LE(most_sleeps, 20 * waited);
  RecordProperty("most_percent_of_a_core", absl::StrCat(most * 100));
  RecordProperty("most_sleeps", absl::StrCat(most_sleeps));
}

// Half of them all do, whatever else takes a core for a while: one that looked for messages at the
// few wake-ups that the test before allows would need a hundred times as long.
TEST_P(ControlChannelTest, ASleepingRankWakesWithinAMillisecond) {
  auto channel = Fork(0, [](ControlChannel& channel) {
    while (true) {
      auto message = channel.Receive(Soon());
      if (!message.ok()) return;
      const int64_t woken = absl::GetCurrentTimeNanos();
      channel.SendToLeader(absl::StrCat(woken), Soon()).IgnoreError();
    }
  });
  ASSERT_NE(channel, nullptr);
  std::vector<double> latencies_us;
  for (int i = 0; i < 180; ++i) {
    for (const pid_t child : children_) {
      if (child != 0) ASSERT_TRUE(AwaitSleep(child));
    }
    const int64_t sent = absl::GetCurrentTimeNanos();
    SKEIN_ASSERT_OK(channel->Broadcast("wake", Soon()));
    for (int rank = 1; rank < kRanks; ++rank) {
      auto message = channel->Receive(Soon());
      SKEIN_ASSERT_OK(message);
      latencies_us.push_back(static_cast<double>(std::stoll(message->bytes) - sent) / 1e3);
    }
  }
  std::sort(latencies_us.begin(), latencies_us.end());
  EXPECT_LT(latencies_us[latencies_us.size() / 2], 1000);
  RecordProperty("p50_us", absl::StrCat(latencies_us[latencies_us.size() / 2]));
  RecordProperty("p90_us", absl::StrCat(latencies_us[latencies_us.size() * 9 / 10]));
}

// ---- Setting up ----

TEST(MakeControlChannel, ARankThatCannotIsNamedToAll) {
  auto group = MakeInProcessGroup(3, "control");
  std::vector<std::thread> threads;
  for (auto& rank : group) {
    threads.emplace_back([&] {
      ControlOptions options;
      if (rank->rank() == 1) options.ring_bytes = 1000;
      EXPECT_THAT(MakeControlChannel(*rank, options),
                  StatusIs(StatusCode::kUnavailable,
                           AllOf(HasSubstr("rank 1 could not"), HasSubstr("power of two"))));
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(MakeControlChannel, OneRankAloneHasNobodyToTalkTo) {
  auto group = MakeInProcessGroup(1, "control");
  auto channel = MakeControlChannel(*group[0]);
  SKEIN_ASSERT_OK(channel);
  SKEIN_EXPECT_OK((*channel)->Broadcast("plan", Soon()));
  EXPECT_THAT((*channel)->Receive(In(absl::Milliseconds(10))),
              StatusIs(StatusCode::kDeadlineExceeded, testing::_));
}

}  // namespace
}  // namespace skein::comm
