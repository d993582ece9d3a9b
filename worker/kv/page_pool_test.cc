#include "worker/kv/page_pool.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace skein::worker {
namespace {

using ::testing::ElementsAre;

TEST(PagePoolTest, HandsOutLowestPagesFirst) {
  PagePool pool(4);
  auto first = pool.Allocate(2);
  auto second = pool.Allocate(1);
  ASSERT_TRUE(first && second);
  EXPECT_THAT(*first, ElementsAre(0, 1));
  EXPECT_THAT(*second, ElementsAre(2));
  pool.Free(*first);
  EXPECT_EQ(pool.free_pages(), 3);
  auto third = pool.Allocate(3);
  ASSERT_TRUE(third);
  EXPECT_THAT(*third, ElementsAre(0, 1, 3));
}

TEST(PagePoolTest, AllOrNothing) {
  PagePool pool(3);
  EXPECT_FALSE(pool.Allocate(4));
  EXPECT_EQ(pool.free_pages(), 3);
  EXPECT_TRUE(pool.Allocate(0)->empty());
  EXPECT_TRUE(pool.Allocate(3));
  EXPECT_FALSE(pool.Allocate(1));
}

TEST(PagePoolDeathTest, FreeingTwiceIsABrokenInvariant) {
  PagePool pool(2);
  const std::vector<int32_t> pages = *pool.Allocate(1);
  pool.Free(pages);
  EXPECT_DEATH(pool.Free(pages), "not in use");
}

}  // namespace
}  // namespace skein::worker
