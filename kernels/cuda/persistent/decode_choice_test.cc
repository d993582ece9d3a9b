#include "kernels/cuda/persistent/decode_choice.h"

#include "gtest/gtest.h"

namespace skein::kernels::cuda {
namespace {

TEST(DecodeChoiceTest, TheFasterFormTakesABatch) {
  DecodeChoice choice;
  EXPECT_FALSE(choice.Takes(1, 0, 0));  // nothing was measured
  choice.Add(1, {.by_kernel = 4, .by_graph = 5}, 0, {});
  choice.Add(4, {.by_kernel = 6, .by_graph = 5}, 0, {});
  EXPECT_TRUE(choice.Takes(1, 0, 0));
  EXPECT_TRUE(choice.Takes(1, 100'000, 100'000));
  // Of the next larger one that was measured.
  EXPECT_FALSE(choice.Takes(2, 0, 0));
  EXPECT_FALSE(choice.Takes(4, 0, 0));
  EXPECT_FALSE(choice.Takes(5, 0, 0));
  choice.TakeAll();
  EXPECT_TRUE(choice.Takes(5, 0, 0));
}

// The kernel is 1 ms faster without positions, and takes 2 us for each of them, not 1: as long as
// graphs at 1,000.
TEST(DecodeChoiceTest, ContextsCount) {
  DecodeChoice choice;
  choice.Add(8, {.by_kernel = 4, .by_graph = 5}, 4'000, {.by_kernel = 12, .by_graph = 9});
  EXPECT_TRUE(choice.Takes(8, 900, 900));
  EXPECT_FALSE(choice.Takes(8, 1'100, 1'100));
  // A prompt's rows, of which each reads what is before it, and graphs all at once: 5.4 ms against
  // 5.08.
  EXPECT_FALSE(choice.Takes(8, 700, 80));
  EXPECT_TRUE(choice.Takes(8, 320, 40));
}

TEST(DecodeChoiceTest, TellsWhatItKnows) {
  DecodeChoice choice;
  choice.Add(1, {.by_kernel = 4.9661f, .by_graph = 5.378f}, 0, {});
  choice.Add(2, {.by_kernel = 5, .by_graph = 6}, 65'536, {.by_kernel = 7, .by_graph = 8});
  EXPECT_EQ(choice.ToString(),
            "1 row 4.966 and 5.378 ms, 2 rows 5.000 and 6.000 ms (7.000 and 8.000 with 65536 "
            "positions)");
}

}  // namespace
}  // namespace skein::kernels::cuda
