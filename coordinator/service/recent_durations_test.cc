#include "coordinator/service/recent_durations.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "absl/time/time.h"
#include "gtest/gtest.h"

namespace skein::coordinator {
namespace {

void ExpectNear(absl::Duration got, absl::Duration want) {
  EXPECT_NEAR(absl::FDivDuration(got, want), 1, 0.07) << got << " for " << want;
}

TEST(RecentDurationsTest, NothingIsNothing) {
  const RecentDurations durations;
  EXPECT_EQ(durations.Read().count, 0);
  EXPECT_EQ(durations.Read().p99, absl::ZeroDuration());
}

TEST(RecentDurationsTest, EveryDurationIsFoundAgain) {
  for (double us = 0.05; us < 1e9; us *= 1.037) {
    RecentDurations durations;
    durations.Add(absl::Microseconds(us));
    EXPECT_EQ(durations.Read().count, 1);
    ExpectNear(durations.Read().p50, absl::Microseconds(us));
    ExpectNear(durations.Read().p99, absl::Microseconds(us));
  }
}

TEST(RecentDurationsTest, WhatIsBeyondCountsAsTheEnds) {
  RecentDurations durations;
  for (const absl::Duration odd : {-absl::Seconds(1), absl::ZeroDuration(), absl::Nanoseconds(1),
                                   absl::Hours(100), absl::InfiniteDuration()}) {
    durations.Add(odd);
  }
  EXPECT_EQ(durations.Read().count, 5);
  EXPECT_LT(durations.Read().p50, absl::Nanoseconds(10));
  EXPECT_GT(durations.Read().p99, absl::Hours(1));
}

// Held against sorted values.
TEST(RecentDurationsTest, QuantilesAreThoseOfTheValues) {
  RecentDurations durations;
  std::vector<double> values;
  for (int i = 0; i < 5000; ++i)
    values.push_back(std::exp(6 + 2 * std::sin(i * 1.7)) * (1 + i % 7));
  for (const double us : values) durations.Add(absl::Microseconds(us));
  std::sort(values.begin(), values.end());
  ExpectNear(durations.Read().p50, absl::Microseconds(values[2499]));
  ExpectNear(durations.Read().p99, absl::Microseconds(values[4949]));
}

TEST(RecentDurationsTest, AMinuteIsKeptAndNoMore) {
  RecentDurations durations;
  absl::Time now = absl::FromUnixSeconds(1000);
  durations.Advance(now);
  durations.Add(absl::Seconds(1));
  const auto pass = [&](absl::Duration time) {
    for (const absl::Time until = now + time; now < until;) {
      now += absl::Milliseconds(100);
      durations.Advance(now);
    }
  };
  pass(absl::Seconds(30));
  durations.Add(absl::Seconds(4));
  EXPECT_EQ(durations.Read().count, 2);
  pass(absl::Seconds(29));
  EXPECT_EQ(durations.Read().count, 2);
  pass(absl::Seconds(12));
  EXPECT_EQ(durations.Read().count, 1);
  ExpectNear(durations.Read().p50, absl::Seconds(4));
  pass(absl::Seconds(60));
  EXPECT_EQ(durations.Read().count, 0);
}

TEST(RecentDurationsTest, AfterALongSleepAllIsOld) {
  RecentDurations durations;
  durations.Advance(absl::FromUnixSeconds(1000));
  durations.Add(absl::Seconds(1));
  durations.Advance(absl::FromUnixSeconds(100'000));
  EXPECT_EQ(durations.Read().count, 0);
  durations.Add(absl::Seconds(1));
  durations.Advance(absl::FromUnixSeconds(100'001));
  EXPECT_EQ(durations.Read().count, 1);
}

}  // namespace
}  // namespace skein::coordinator
