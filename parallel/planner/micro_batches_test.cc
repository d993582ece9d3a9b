#include "parallel/planner/micro_batches.h"

#include <vector>

#include "gtest/gtest.h"

namespace skein::plan {
namespace {

using Counts = std::vector<int32_t>;

TEST(MicroBatchCountsTest, AreThoseThatMakeTheLargestSmaller) {
  EXPECT_EQ(MicroBatchCounts(1, 64), (Counts{1}));
  EXPECT_EQ(MicroBatchCounts(4, 3), (Counts{3}));
  EXPECT_EQ(MicroBatchCounts(4, 4), (Counts{4}));
  EXPECT_EQ(MicroBatchCounts(4, 5), (Counts{4, 5}));
  EXPECT_EQ(MicroBatchCounts(4, 16), (Counts{4, 5, 6, 8, 16}));  // of 4, 4, 3, 2 and 1 rows
  EXPECT_EQ(MicroBatchCounts(2, 16), (Counts{2, 3, 4, 6, 8}));   // not 16, each of one row
  EXPECT_EQ(MicroBatchCounts(2, 3), (Counts{2, 3}));
}

}  // namespace
}  // namespace skein::plan
