#include "worker/kv/page_pool.h"

#include <ostream>
#include <vector>

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

struct Counts {
  int64_t free, used, shared, cached, idle;
  friend bool operator==(const Counts&, const Counts&) = default;
  friend void PrintTo(const Counts& c, std::ostream* os) {
    *os << "free " << c.free << " used " << c.used << " shared " << c.shared << " cached "
        << c.cached << " idle " << c.idle;
  }
};

Counts CountsOf(const PagePool& pool) {
  return {pool.free_pages(), pool.used_pages(), pool.shared_pages(), pool.cached_pages(),
          pool.idle_pages()};
}

// Each row does one thing to page 1 of three, of which page 0 is in use.
TEST(PagePoolTest, CountsFollowEveryChange) {
  using Op = void (*)(PagePool&);
  const Op share = [](PagePool& pool) { pool.Share({1}); };
  const Op free = [](PagePool& pool) { pool.Free({1}); };
  const Op cache = [](PagePool& pool) { pool.Cache(1); };
  const Op uncache = [](PagePool& pool) { pool.Uncache(1); };
  const struct {
    const char* what;
    Op op;
    Counts counts;  // free, used, shared, cached, idle
    int32_t users;
  } kRows[] = {
      {"second user", share, {1, 2, 1, 0, 0}, 2},
      {"third user", share, {1, 2, 1, 0, 0}, 3},
      {"two left", free, {1, 2, 1, 0, 0}, 2},
      {"cached while shared", cache, {1, 2, 1, 1, 0}, 2},
      {"one left", free, {1, 2, 0, 1, 0}, 1},
      {"idle", free, {1, 1, 0, 1, 1}, 0},
      {"used again", share, {1, 2, 0, 1, 0}, 1},
      {"uncached while used", uncache, {1, 2, 0, 0, 0}, 1},
      {"cached again", cache, {1, 2, 0, 1, 0}, 1},
      {"idle again", free, {1, 1, 0, 1, 1}, 0},
      {"free", uncache, {2, 1, 0, 0, 0}, 0},
  };
  PagePool pool(3);
  ASSERT_TRUE(pool.Allocate(2));
  EXPECT_EQ(CountsOf(pool), (Counts{1, 2, 0, 0, 0}));
  for (const auto& row : kRows) {
    SCOPED_TRACE(row.what);
    row.op(pool);
    EXPECT_EQ(CountsOf(pool), row.counts);
    EXPECT_EQ(pool.users(1), row.users);
    EXPECT_EQ(pool.cached(1), row.counts.cached == 1);
  }
  EXPECT_THAT(*pool.Allocate(2), ElementsAre(1, 2));
}

TEST(PagePoolTest, KnowsWhichIdlePageWasUsedLast) {
  PagePool pool(4);
  ASSERT_TRUE(pool.Allocate(4));
  for (int32_t page = 0; page < 4; ++page) pool.Cache(page);
  pool.Free({2});
  pool.Free({0, 1});  // the last one first
  pool.Share({2});
  pool.Free({2});
  std::vector<int32_t> order;
  while (pool.idle_pages() > 0) {
    order.push_back(pool.oldest_idle());
    pool.Uncache(order.back());
  }
  EXPECT_THAT(order, ElementsAre(1, 0, 2));
}

TEST(PagePoolTest, IdleVersionGrowsWithEveryChangeOfTheIdlePages) {
  PagePool pool(2);
  ASSERT_TRUE(pool.Allocate(2));
  pool.Cache(0);
  pool.Share({0});
  pool.Free({0, 1});
  const uint64_t none = pool.idle_version();
  pool.Free({0});
  const uint64_t one = pool.idle_version();
  EXPECT_GT(one, none);
  pool.Share({0});
  EXPECT_GT(pool.idle_version(), one);
}

TEST(PagePoolDeathTest, BrokenRulesEndTheProcess) {
  PagePool pool(3);
  ASSERT_TRUE(pool.Allocate(2));
  pool.Free({1});
  EXPECT_DEATH(pool.Free({1}), "not in use");
  EXPECT_DEATH(pool.Free({3}), "not in use");
  EXPECT_DEATH(pool.Free({-1}), "not in use");
  EXPECT_DEATH(pool.Share({1}), "free page");
  EXPECT_DEATH(pool.Cache(1), "not in use");
  EXPECT_DEATH(pool.Uncache(0), "not cached");
  EXPECT_DEATH(pool.oldest_idle(), "no page is idle");
  pool.Cache(0);
  EXPECT_DEATH(pool.Cache(0), "cached already");
}

}  // namespace
}  // namespace skein::worker
