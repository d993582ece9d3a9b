#include "parallel/planner/micro_batches.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/time/time.h"
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

int32_t Best(const std::vector<double>& ms) {
  const Counts counts = MicroBatchCounts(4, 16);
  return BestMicroBatches(4, 16, [&](int32_t count) -> std::optional<absl::Duration> {
    const auto found = std::find(counts.begin(), counts.end(), count);
    const auto at = static_cast<size_t>(found - counts.begin());
    if (at >= ms.size()) return std::nullopt;
    return absl::Milliseconds(ms[at]);
  });
}

TEST(BestMicroBatchesTest, ManyHaveToPay) {
  EXPECT_EQ(Best({10, 9.9, 9.8, 9.8, 9.8}), 5);  // of 4, 5, 6, 8 and 16
  EXPECT_EQ(Best({10, 11, 9.4, 9.3, 9.3}), 6);
  EXPECT_EQ(Best({10, 11, 9.6, 9.4, 9}), 4);  // two in a row do not pay
  EXPECT_EQ(Best({10, 11, 9, 8, 7}), 16);
  EXPECT_EQ(Best({10, 11}), 4);
  EXPECT_EQ(Best({}), 4);
}

}  // namespace
}  // namespace skein::plan
