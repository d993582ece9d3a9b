#include "parallel/comm/mpi/backoff.h"

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"

namespace skein::comm {
namespace {

// How often it polls for something that does not come.
int Polls(absl::Duration spin, absl::Duration wait) {
  Backoff backoff(spin);
  int polls = 0;
  for (const absl::Time end = absl::Now() + wait; absl::Now() < end; ++polls) backoff.Pause();
  return polls;
}

// Sleeps of 20 us, then twice as long each time, are 7 in the first 2.5 ms, then 1 ms each.
TEST(BackoffTest, SleepsLongerAndLongerOnceItHasSpun) {
  constexpr absl::Duration kWait = absl::Milliseconds(50);
  EXPECT_LE(Polls(absl::ZeroDuration(), kWait), 60);
  EXPECT_GE(Polls(absl::InfiniteDuration(), kWait), 600);
}

TEST(BackoffTest, SpinsAnewBehindAPollThatFoundSomething) {
  Backoff backoff(absl::Milliseconds(1));
  const absl::Time end = absl::Now() + absl::Milliseconds(50);
  int polls = 0;
  for (; absl::Now() < end; ++polls) {
    backoff.Pause();
    backoff.Reset();
  }
  EXPECT_GE(polls, 600);
}

}  // namespace
}  // namespace skein::comm
