#include "supervisor/keeper.h"

#include <signal.h>

#include <string>
#include <vector>

#include "absl/time/time.h"
#include "base/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace skein::supervisor {
namespace {

using State = Keeper::State;
using Step = Keeper::Step;
using ::testing::Optional;

constexpr Keeper::Pace kNamed = {.grace = absl::Seconds(3), .patience = absl::Seconds(2)};

// A program's life: how long until it serves (unset: never), how long it serves, its end.
struct Life {
  std::optional<double> serves_after_s;
  double then_s = 0;
  ExitStatus end;
  double wait_s;  // wanted; -1: it is over
};

struct PolicyCase {
  std::string name;
  Keeper::Options options;
  std::vector<Life> lives;
};

class PolicyTest : public ::testing::TestWithParam<PolicyCase> {};

TEST_P(PolicyTest, WaitsAsLongAsItShould) {
  SimulatedClock clock;
  Keeper keeper(GetParam().options, clock.Now());
  int number = 0;
  for (const Life& life : GetParam().lives) {
    SCOPED_TRACE(++number);
    ASSERT_EQ(keeper.Next(clock.Now()), Step::kStart);
    ASSERT_EQ(keeper.Next(clock.Now()), Step::kNone);
    if (life.serves_after_s) {
      clock.Advance(absl::Seconds(*life.serves_after_s));
      keeper.Serves(clock.Now());
    }
    clock.Advance(absl::Seconds(life.then_s));
    EXPECT_EQ(keeper.NextTime(), absl::InfiniteFuture());
    const Keeper::Aftermath after = keeper.Ended(life.end, clock.Now());
    EXPECT_EQ(after.served, absl::Seconds(life.serves_after_s ? life.then_s : 0));
    if (life.wait_s < 0) {
      EXPECT_EQ(after.wait, std::nullopt);
      EXPECT_EQ(keeper.state(), State::kOver);
      clock.Advance(absl::Hours(1));
      EXPECT_EQ(keeper.Next(clock.Now()), Step::kNone);
      return;
    }
    EXPECT_THAT(after.wait, Optional(absl::Seconds(life.wait_s)));
    EXPECT_EQ(keeper.state(), State::kWaiting);
    EXPECT_EQ(keeper.NextTime(), clock.Now() + absl::Seconds(life.wait_s));
    clock.Advance(absl::Seconds(life.wait_s) - absl::Nanoseconds(1));
    EXPECT_EQ(keeper.Next(clock.Now()), Step::kNone);
    clock.Advance(absl::Nanoseconds(1));
  }
}

constexpr ExitStatus kDied = {.code = 9};
constexpr ExitStatus kKilled = {.signal = SIGKILL};

INSTANTIATE_TEST_SUITE_P(
    , PolicyTest,
    ::testing::Values(PolicyCase{"DoublesUpToHalfAMinuteByDefault",
                                 {},
                                 {{{}, 0, kDied, 0.5},
                                  {{}, 0, kKilled, 1},
                                  {{}, 0, kDied, 2},
                                  {{}, 0, kDied, 4},
                                  {{}, 0, kDied, 8},
                                  {{}, 0, kDied, 16},
                                  {{}, 0, kDied, 30},
                                  {{}, 0, kDied, 30},
                                  {{}, 0, {.code = 0}, -1}}},
                      PolicyCase{"BeginsAnewAfterTenSecondsOfServiceByDefault",
                                 {},
                                 {{{}, 0, kDied, 0.5},
                                  {{}, 0, kDied, 1},
                                  {0, 9.999, kDied, 2},
                                  {0, 10, kDied, 0.5},
                                  {3600, 0, kDied, 1},
                                  {{}, 3600, kDied, 2}}},
                      PolicyCase{"WithFlags",
                                 {absl::Seconds(0.1), absl::Seconds(0.4), absl::Seconds(0.5)},
                                 {{{}, 0, kDied, 0.1},
                                  {{}, 0, kDied, 0.2},
                                  {{}, 0.7, kDied, 0.4},
                                  {{}, 0, kDied, 0.4},
                                  {0.1, 0.6, kDied, 0.1},
                                  {{}, 0, kDied, 0.2}}},
                      PolicyCase{
                          "MisuseIsOver", {}, {{{}, 0, kDied, 0.5}, {{}, 0, {.code = 2}, -1}}},
                      PolicyCase{"SignalTwoIsNoMisuse", {}, {{{}, 0, {.signal = SIGINT}, 0.5}}}),
    [](const auto& info) { return info.param.name; });

class EndingTest : public ::testing::Test {
 protected:
  EndingTest() { EXPECT_EQ(keeper_.Next(clock_.Now()), Step::kStart); }

  SimulatedClock clock_;
  Keeper keeper_{{}, clock_.Now()};
};

TEST_F(EndingTest, AsksAfterTheGraceAndKillsAfterThePatience) {
  keeper_.End(kNamed, clock_.Now());
  EXPECT_EQ(keeper_.Next(clock_.Now()), Step::kNone);
  EXPECT_EQ(keeper_.NextTime(), clock_.Now() + absl::Seconds(3));
  clock_.Advance(absl::Seconds(3));
  EXPECT_EQ(keeper_.Next(clock_.Now()), Step::kTerminate);
  EXPECT_EQ(keeper_.Next(clock_.Now()), Step::kNone);
  EXPECT_EQ(keeper_.NextTime(), clock_.Now() + absl::Seconds(2));
  clock_.Advance(absl::Seconds(2));
  EXPECT_EQ(keeper_.Next(clock_.Now()), Step::kKill);
  EXPECT_EQ(keeper_.Next(clock_.Now()), Step::kNone);
  EXPECT_EQ(keeper_.NextTime(), absl::InfiniteFuture());
  EXPECT_THAT(keeper_.Ended(kKilled, clock_.Now()).wait, Optional(absl::Milliseconds(500)));
}

TEST_F(EndingTest, TheFastestOrderCounts) {
  keeper_.End(kNamed, clock_.Now());
  keeper_.End({.grace = absl::Hours(1), .patience = absl::Hours(1)}, clock_.Now());
  clock_.Advance(absl::Seconds(1));
  keeper_.End({.patience = absl::Seconds(1)}, clock_.Now());
  EXPECT_EQ(keeper_.Next(clock_.Now()), Step::kTerminate);
  EXPECT_EQ(keeper_.NextTime(), clock_.Now() + absl::Seconds(1));
}

TEST_F(EndingTest, OneThatEndsInTheGraceHasTheLastWord) {
  keeper_.End(kNamed, clock_.Now());
  EXPECT_EQ(keeper_.Ended({.code = 0}, clock_.Now()).wait, std::nullopt);
}

TEST_F(EndingTest, OneThatIsLostStartsAgainWhateverItSays) {
  keeper_.End({.grace = absl::Hours(1), .lost = true}, clock_.Now());
  keeper_.End(kNamed, clock_.Now());
  EXPECT_NE(keeper_.Ended({.code = 0}, clock_.Now()).wait, std::nullopt);
  keeper_.Stop();
  EXPECT_EQ(keeper_.state(), State::kOver);
  EXPECT_FALSE(keeper_.drained());
}

TEST_F(EndingTest, OnlyOneThatWasNotAskedHasDrained) {
  keeper_.End({.patience = absl::Seconds(9)}, clock_.Now());
  EXPECT_EQ(keeper_.Next(clock_.Now()), Step::kTerminate);
  keeper_.Stop();
  keeper_.Ended({.code = 0}, clock_.Now());
  EXPECT_FALSE(keeper_.drained());

  Keeper other({}, clock_.Now());
  EXPECT_EQ(other.Next(clock_.Now()), Step::kStart);
  other.Ended({.code = 0}, clock_.Now());
  EXPECT_TRUE(other.drained());
}

TEST_F(EndingTest, OneThatWasForcedStartsAgainWhateverItSays) {
  for (const int code : {0, 2}) {
    keeper_.End({.patience = absl::Seconds(1)}, clock_.Now());
    EXPECT_EQ(keeper_.Next(clock_.Now()), Step::kTerminate);
    EXPECT_NE(keeper_.Ended({.code = code}, clock_.Now()).wait, std::nullopt) << code;
    clock_.Advance(absl::Seconds(30));
    EXPECT_EQ(keeper_.Next(clock_.Now()), Step::kStart);
    EXPECT_EQ(keeper_.NextTime(), absl::InfiniteFuture());
  }
}

TEST_F(EndingTest, WithoutPatienceItIsNotAsked) {
  keeper_.End({}, clock_.Now());
  EXPECT_EQ(keeper_.Next(clock_.Now()), Step::kKill);
  EXPECT_EQ(keeper_.Next(clock_.Now()), Step::kNone);
}

TEST_F(EndingTest, OnlyItsOwnWordIsMisuse) {
  keeper_.Ended({.code = 2}, clock_.Now());
  EXPECT_TRUE(keeper_.misused());
  Keeper stopped({}, clock_.Now());
  EXPECT_EQ(stopped.Next(clock_.Now()), Step::kStart);
  stopped.Stop();
  stopped.Ended({.code = 2}, clock_.Now());
  EXPECT_FALSE(stopped.misused());
}

TEST_F(EndingTest, AStoppedOneStartsNoMore) {
  keeper_.Stop();
  EXPECT_EQ(keeper_.state(), State::kRunning);
  EXPECT_EQ(keeper_.Ended(kDied, clock_.Now()).wait, std::nullopt);
  EXPECT_EQ(keeper_.state(), State::kOver);
}

TEST_F(EndingTest, AStoppedOneThatWaitsIsOver) {
  keeper_.Ended(kDied, clock_.Now());
  keeper_.Stop();
  EXPECT_EQ(keeper_.state(), State::kOver);
  clock_.Advance(absl::Hours(1));
  EXPECT_EQ(keeper_.Next(clock_.Now()), Step::kNone);
}

TEST(ExitStatusTest, TellsSignalsByName) {
  EXPECT_EQ(ExitStatus{.code = 9}.ToString(), "ended with status 9");
  EXPECT_EQ(ExitStatus{.signal = SIGKILL}.ToString(), "was killed by SIGKILL");
  EXPECT_EQ(ExitStatus{.signal = 99}.ToString(), "was killed by signal 99");
}

}  // namespace
}  // namespace skein::supervisor
