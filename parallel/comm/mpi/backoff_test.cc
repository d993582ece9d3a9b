#include "parallel/comm/mpi/backoff.h"

#include <algorithm>
#include <functional>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "parallel/comm/shared_memory/bell.h"

namespace skein::comm {
namespace {

constexpr absl::Duration kWait = absl::Milliseconds(50);
// Sleeps of 20 us, then of an eighth of what was waited, are 50 in the first 24 ms, then 3 ms each.
constexpr int kOfSleeps = 60;

int PollsIn(absl::Duration wait, const std::function<void()>& pause) {
  int polls = 0;
  for (const absl::Time end = absl::Now() + wait; absl::Now() < end; ++polls) pause();
  return polls;
}
// In one of several runs: where others want the core, a yield may last as long as a sleep.
bool PollsMoreThanItCouldSleep(const std::function<void()>& pause) {
  for (int run = 0; run < 40; ++run) {
    if (PollsIn(kWait, pause) > kOfSleeps) return true;
  }
  return false;
}

TEST(BackoffTest, SleepsLongerAndLongerOnceItHasSpun) {
  Backoff sleeps(absl::ZeroDuration());
  EXPECT_LE(PollsIn(kWait, [&] { sleeps.Pause(); }), kOfSleeps);
  Backoff spins(absl::InfiniteDuration());
  EXPECT_TRUE(PollsMoreThanItCouldSleep([&] { spins.Pause(); }));
}

TEST(BackoffTest, IsLateByAnEighthOfItsWaitAtMost) {
  for (const int us : {160, 1000, 5000, 24000}) {
    const absl::Duration waited = absl::Microseconds(us);
    EXPECT_EQ(Backoff::SleepAfter(waited), waited / 8);
  }
  EXPECT_EQ(Backoff::SleepAfter(absl::ZeroDuration()), absl::Microseconds(20));
  EXPECT_EQ(Backoff::SleepAfter(absl::Seconds(1)), absl::Milliseconds(3));
}

TEST(BackoffTest, SpinsAnewBehindAPollThatFoundSomething) {
  Backoff backoff(absl::Milliseconds(1));
  EXPECT_TRUE(PollsMoreThanItCouldSleep([&] {
    backoff.Pause();
    backoff.Reset();
  }));
}

// What is rung behind Listen ends the sleep, also before it begins.
TEST(BackoffTest, ARingEndsItsSleepAndBeginsAnew) {
  Bell bell;
  Backoff backoff(absl::ZeroDuration(), &bell);
  const absl::Time begin = absl::Now();
  while (absl::Now() - begin < absl::Milliseconds(30)) {  // from now on it sleeps for 3 ms
    backoff.Listen();
    backoff.Pause();
  }
  absl::Duration shortest = absl::InfiniteDuration();
  for (int run = 0; run < 20; ++run) {
    backoff.Listen();
    bell.Ring();
    const absl::Time rung = absl::Now();
    backoff.Pause();
    shortest = std::min(shortest, absl::Now() - rung);
  }
  EXPECT_LT(shortest, absl::Milliseconds(1));
  // It has just begun to wait, so that it sleeps for the least.
  int polls = 0;
  for (int run = 0; run < 20; ++run) {
    bell.Ring();
    backoff.Listen();
    polls = std::max(polls, PollsIn(absl::Milliseconds(2), [&] { backoff.Pause(); }));
  }
  EXPECT_GT(polls, 3);
}

TEST(BackoffTest, WithABellThatNobodyRingsItSleepsAsWithout) {
  Bell bell;
  Backoff backoff(absl::ZeroDuration(), &bell);
  EXPECT_LE(PollsIn(kWait,
                    [&] {
                      backoff.Listen();
                      backoff.Pause();
                    }),
            kOfSleeps);
}

}  // namespace
}  // namespace skein::comm
