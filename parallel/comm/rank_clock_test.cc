#include "parallel/comm/rank_clock.h"

#include <array>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/test_util.h"
#include "gtest/gtest.h"
#include "parallel/comm/inprocess/inprocess.h"
#include "parallel/comm/operation_tracker.h"
#include "parallel/comm/pulse.h"

namespace skein::comm {
namespace {

constexpr int64_t kMs = 1'000'000;

// What was settled by the last change; reading counts real time, of which there is less than 10 s
// here, as waiting.
RankTimes Settled(RankClock& clock) {
  RankTimes times = *clock.Read();
  times.waiting = absl::Trunc(times.waiting, absl::Milliseconds(1));
  return times;
}

// Times of the past, so that a read finds time passed since the last change.
class RankClockTest : public ::testing::Test {
 protected:
  RankClockTest() { clock_.Start(begin_); }
  int64_t At(int64_t ms) const { return begin_ + ms * kMs; }

  RankClock clock_;
  const int64_t begin_ = Pulse::NowNs() - 1000 * kMs;
};

TEST_F(RankClockTest, EveryMomentIsOneActivity) {
  clock_.SetBusy(true, At(100));  // 100 of waiting
  clock_.Enter(At(120));          // 20 of compute
  clock_.AddWaited(25 * kMs);
  clock_.Leave(At(150));           // 25 of bubble, 5 of transfer
  clock_.Enter(At(157));           // 7 of compute
  clock_.Leave(At(160));           // 3 of transfer
  clock_.SetBusy(false, At(200));  // 40 of compute
  const RankTimes times = Settled(clock_);
  EXPECT_EQ(times.compute, absl::Milliseconds(67));
  EXPECT_EQ(times.transfer, absl::Milliseconds(8));
  EXPECT_EQ(times.bubble, absl::Milliseconds(25));
  EXPECT_GE(times.waiting, absl::Milliseconds(900));
  const absl::Duration passed = absl::Nanoseconds(Pulse::NowNs() - begin_);
  EXPECT_LE(times.Sum(), passed);
  EXPECT_GE(times.Sum(), passed - absl::Milliseconds(500));
}

TEST_F(RankClockTest, ARankThatIsStuckIsSeenSoAtOnce) {
  clock_.SetBusy(true, At(0));
  clock_.Enter(At(0));
  clock_.AddWaited(900 * kMs);  // it polls, and has not left
  const RankTimes times = *clock_.Read();
  EXPECT_EQ(times.bubble, absl::Milliseconds(900));
  EXPECT_EQ(times.compute, absl::ZeroDuration());
  EXPECT_EQ(times.waiting, absl::ZeroDuration());
}

TEST_F(RankClockTest, NothingCountsTwiceAndNothingGoesBack) {
  clock_.SetBusy(true, At(10));
  clock_.Enter(At(20));
  clock_.AddWaited(500 * kMs);  // of two threads at a time
  clock_.Leave(At(30));
  clock_.Enter(At(25));  // a clock that was looked at before
  clock_.Leave(At(40));
  clock_.SetBusy(false, At(40));
  const RankTimes times = Settled(clock_);
  EXPECT_EQ(times.bubble, absl::Milliseconds(10));
  EXPECT_EQ(times.transfer, absl::Milliseconds(10));
  EXPECT_EQ(times.compute, absl::Milliseconds(10));
}

TEST(RankClockStartTest, WhatWasBeforeTheStartIsLeftOut) {
  RankClock clock;
  EXPECT_EQ(clock.Read(), std::nullopt);
  const int64_t now = Pulse::NowNs();
  clock.Enter(now - 5000 * kMs);
  clock.AddWaited(4000 * kMs);
  clock.Leave(now - 10 * kMs);
  clock.Start(now);
  EXPECT_EQ(clock.Read()->bubble, absl::ZeroDuration());
  EXPECT_LT(clock.Read()->Sum(), absl::Seconds(3));
}

// Two ranks, one of which is late: the other one waits for it.
TEST(TrackedTimesTest, WhoIsLateComputesAndWhoWaitsHasABubble) {
  std::vector<std::unique_ptr<Communicator>> group = MakeInProcessGroup(2, "pair");
  std::array<OperationTracker, 2> trackers;
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < 2; ++rank) {
    group[rank]->Track(trackers[rank].AddGroup("pair", {0, 1}, rank));
    ranks.emplace_back([&, rank] {
      OperationTracker& tracker = trackers[rank];
      tracker.StartTimes();
      tracker.BeginStep(1, absl::Seconds(30));
      if (rank == 1) absl::SleepFor(absl::Milliseconds(300));
      SKEIN_EXPECT_OK(group[rank]->Barrier(kHostStream));
      tracker.EndStep();
    });
  }
  for (std::thread& rank : ranks) rank.join();
  EXPECT_GE(trackers[0].Times()->bubble, absl::Milliseconds(250));
  EXPECT_GE(trackers[1].Times()->compute, absl::Milliseconds(300));
  EXPECT_LT(trackers[1].Times()->bubble, absl::Milliseconds(100));
  EXPECT_LT(trackers[0].Times()->compute, absl::Milliseconds(100));
}

}  // namespace
}  // namespace skein::comm
