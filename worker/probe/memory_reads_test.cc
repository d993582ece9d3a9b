#include "worker/probe/memory_reads.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "topology/rates.h"

namespace skein::worker {
namespace {

using ::testing::DoubleEq;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using topology::ReadRate;

constexpr int64_t kMiB = int64_t{1} << 20;

// A cache of 4 MiB.
double Pass(int64_t bytes) { return bytes <= 4 * kMiB ? 8e9 : 2e9; }

TEST(TimeReadsTest, RatesAreOfEachThreadThatReads) {
  const TimedReads timed = TimeReads({kMiB, 2 * kMiB, 4 * kMiB, 16 * kMiB}, 4, {}, Pass);
  // A MiB is read by one thread, two by two.
  EXPECT_THAT(timed.bytes_per_s,
              ElementsAre(DoubleEq(8e9), DoubleEq(4e9), DoubleEq(2e9), DoubleEq(0.5e9)));
  EXPECT_EQ(timed.spread, 0);
}

TEST(TimeReadsTest, RanksMeetOnceWhatTheyReadIsWhereCachesKeepIt) {
  std::string said;  // a letter a call, repeated ones once
  const auto say = [&](char what) {
    if (!said.ends_with(what) || what == 'M') said += what;
  };
  TimeReads({kMiB, 8 * kMiB}, 1, {.meet = [&] { say('M'); }}, [&](int64_t bytes) {
    say(bytes == kMiB ? 'a' : 'b');
    return 1e9;
  });
  EXPECT_EQ(said, "aMabMb");
  int passes = 0, before = 0;
  TimeReads({kMiB}, 1, {.meet = [&] { before = passes; }}, [&](int64_t) { return ++passes; });
  EXPECT_EQ(before, 1);
  EXPECT_GE(passes, 1 + 2);
}

TEST(TimeReadsTest, WhatDisturbsSomePassesCountsForNothing) {
  int passes = 0;
  const TimedReads timed =
      TimeReads({kMiB}, 1, {}, [&](int64_t) { return ++passes % 3 == 0 ? 1e3 : 6e9; });
  EXPECT_THAT(timed.bytes_per_s, ElementsAre(6e9));
}

TEST(TimeReadsTest, TheLargestSpreadIsTold) {
  int calls = 0;
  // The second working set's samples differ, however few: passes of 3 ms, one a sample.
  const auto slow = [&](int64_t bytes) {
    if (bytes == kMiB) return 4e9;
    const auto until = absl::Now() + absl::Milliseconds(3);
    while (absl::Now() < until) {
    }
    return 1e9 * (1 << (++calls % 5));
  };
  EXPECT_GT(TimeReads({kMiB, 2 * kMiB}, 1, {}, slow).spread, 0.2);
  EXPECT_GT(TimeReads({2 * kMiB, kMiB}, 1, {}, slow).spread, 0.2);
}

// Of sets in a cache each pass misses a part of what the one before has missed.
TEST(TimeReadsBehindTest, FirstPassesAndWhatNextOnesMissAreTold) {
  constexpr double kBeyond = 2e9, kAgain = 0.5;
  std::vector<ReadRate> reads = {{kMiB, 8e9, 8e9},
                                 {8 * kMiB, 6e9, 6e9},
                                 {16 * kMiB, 2.5e9, 2.5e9},
                                 {32 * kMiB, 1.9e9, 1.9e9},
                                 {64 * kMiB, kBeyond, kBeyond}};
  std::vector<int64_t> put_out;
  int meetings = 0;
  double missed = 0;
  const auto pass = [&](int64_t bytes) {
    const double held = bytes == kMiB ? 8e9 : 6e9;
    const double of_thread = 1 / (1 / held + missed * (1 / kBeyond - 1 / held));
    missed *= kAgain;
    return bytes == kMiB ? of_thread : 4 * of_thread;
  };
  const auto others = [&](int64_t bytes) {
    if (put_out.empty() || put_out.back() != bytes) put_out.push_back(bytes);
    missed = 1;
  };
  TimeReadsBehind(4, {.meet = [&] { ++meetings; }}, pass, others, reads);
  for (const ReadRate& read : reads) {
    EXPECT_NEAR(read.behind_bytes_per_s, std::min(kBeyond, read.together_bytes_per_s), 1)
        << read.working_set_bytes;
    // What is read little faster than beyond caches is back with no pass.
    const bool in_cache = read.working_set_bytes <= 8 * kMiB;
    EXPECT_NEAR(read.missed_again, in_cache ? kAgain : 1, 1e-6) << read.working_set_bytes;
  }
  EXPECT_EQ(meetings, 5);
  EXPECT_THAT(put_out, ElementsAre(kMiB, 8 * kMiB));
}

TEST(ReadRatesTest, AloneAndAtOnceAreToldApart) {
  const std::vector<int64_t> sizes = {kMiB, 8 * kMiB};
  EXPECT_THAT(ReadRates(sizes, {.bytes_per_s = {9e9, 6e9}}, {.bytes_per_s = {8e9, 3e9}}),
              ElementsAre(ReadRate{kMiB, 9e9, 8e9}, ReadRate{8 * kMiB, 6e9, 3e9}));
  // Who was alone has been disturbed, or has not measured.
  EXPECT_THAT(ReadRates(sizes, {.bytes_per_s = {7e9, 0}}, {.bytes_per_s = {8e9, 3e9}}),
              ElementsAre(ReadRate{kMiB, 8e9, 8e9}, ReadRate{8 * kMiB, 3e9, 3e9}));
  EXPECT_THAT(ReadRates({}, {}, {}), IsEmpty());
}

}  // namespace
}  // namespace skein::worker
