#include "worker/probe/samples.h"

#include "gtest/gtest.h"

namespace skein::worker {
namespace {

TEST(SamplesTest, HalfLieWithinTheSpread) {
  const Sampled sampled = Summarise({10, 11, 9, 14, 10});
  EXPECT_EQ(sampled.median, 10);
  EXPECT_EQ(sampled.spread, 0.1);  // |x - 10| is 0, 0, 1, 1, 4
  EXPECT_EQ(Summarise({7}).spread, 0);
  EXPECT_EQ(Summarise({0, 0, 0}).spread, 0);
}

// One sample that others disturbed moves neither.
TEST(SamplesTest, AnOutlierCountsForNothing) {
  const Sampled quiet = Summarise({10, 11, 9, 10, 12});
  const Sampled disturbed = Summarise({10, 11, 9, 10, 1200});
  EXPECT_EQ(disturbed.median, quiet.median);
  EXPECT_EQ(disturbed.spread, quiet.spread);
}

// The medians of each, 13 and 10, are of unlike times.
TEST(SamplesTest, DifferencesAreOfWhatWasTakenAtOneTime) {
  EXPECT_EQ(MedianDifference({11, 22, 13}, {10, 20, 9}), 2);
}

}  // namespace
}  // namespace skein::worker
