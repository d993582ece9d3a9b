#include "parallel/plan/held_pages.h"

#include <algorithm>

#include "gtest/gtest.h"

namespace skein::plan {
namespace {

TEST(HeldPagesTest, AllWithoutAWindow) {
  EXPECT_EQ(MostHeldPages(1, 0, 100, 16), 1);
  EXPECT_EQ(MostHeldPages(16, 0, 100, 16), 1);
  EXPECT_EQ(MostHeldPages(17, 0, 100, 16), 2);
}

// Every step from every position, counted page by page.
TEST(HeldPagesTest, IsTheMostThatAnyStepTouches) {
  for (int64_t page_size : {1, 2, 4, 16}) {
    for (int64_t window : {1, 2, 3, 15, 16, 17, 40}) {
      for (int64_t rows : {1, 2, 7, 16, 33}) {
        int64_t most = 0;
        const int64_t tokens = 200;
        for (int64_t begin = 0; begin < tokens; ++begin) {
          const int64_t first = std::max<int64_t>(begin - window + 1, 0) / page_size;
          const int64_t last = (std::min(begin + rows, tokens) - 1) / page_size;
          most = std::max(most, last - first + 1);
        }
        EXPECT_EQ(MostHeldPages(tokens, window, rows, page_size), most)
            << page_size << " " << window << " " << rows;
      }
    }
  }
}

TEST(HeldPagesTest, ShortSequencesHoldTheirOwn) { EXPECT_EQ(MostHeldPages(20, 1000, 8, 16), 2); }

}  // namespace
}  // namespace skein::plan
