#include "parallel/comm/mpi/backoff.h"

#include <functional>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"

namespace skein::comm {
namespace {

constexpr absl::Duration kWait = absl::Milliseconds(50);
// Sleeps of 20 us, then of half of what was waited, are 12 in the first 2 ms, then 1 ms each.
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

TEST(BackoffTest, SpinsAnewBehindAPollThatFoundSomething) {
  Backoff backoff(absl::Milliseconds(1));
  EXPECT_TRUE(PollsMoreThanItCouldSleep([&] {
    backoff.Pause();
    backoff.Reset();
  }));
}

}  // namespace
}  // namespace skein::comm
