#include "worker/kv/prefix_cache.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/kv/page_pool.h"

namespace skein::worker {
namespace {

using ::testing::ElementsAre;

constexpr int64_t kPageSize = 2;

// A token per character.
std::vector<int32_t> Tokens(const std::string& text) { return {text.begin(), text.end()}; }

class PrefixCacheTest : public ::testing::Test {
 protected:
  // A sequence's pages after it computed all of `text` without a hit and was inserted.
  std::vector<int32_t> Insert(const std::string& text) {
    std::vector<int32_t> pages = *pool_.Allocate((text.size() + kPageSize - 1) / kPageSize);
    cache_.Insert(Tokens(text), pages);
    return pages;
  }
  void InsertAndFree(const std::string& text) { pool_.Free(Insert(text)); }
  PrefixCache::Hit Find(const std::string& text) const {
    return cache_.Find(Tokens(text), static_cast<int64_t>(text.size()));
  }

  PagePool pool_{16};
  PrefixCache cache_{&pool_, kPageSize};
};

TEST_F(PrefixCacheTest, FindsTheLongestPrefixInFullPages) {
  InsertAndFree("abcdef");
  InsertAndFree("abcdxyz");  // z fills no page
  const struct {
    std::string text;
    int64_t limit;
    int64_t pages;
  } kRows[] = {
      {"", 100, 0},       {"a", 100, 0},    {"ab", 100, 1},
      {"abc", 100, 1},    {"abcd", 100, 2}, {"abcdef", 100, 3},
      {"abcdefgh", 8, 3}, {"abcdxy", 6, 3}, {"abcdxyz0", 8, 3},
      {"abxy", 100, 1},   {"abcdef", 5, 2}, {"abcdef", 6, 3},
      {"abcdef", 1, 0},   {"abcdef", 0, 0}, {"bacd", 100, 0},
      {"cdef", 100, 0},  // the same tokens elsewhere are another page
      {"ababab", 100, 1},
  };
  for (const auto& row : kRows) {
    SCOPED_TRACE(row.text + ", limit " + std::to_string(row.limit));
    const PrefixCache::Hit hit = cache_.Find(Tokens(row.text), row.limit);
    EXPECT_EQ(hit.pages, row.pages);
    EXPECT_EQ(hit.idle, row.pages);
    const std::vector<int32_t> pages = cache_.Acquire(Tokens(row.text), row.limit);
    EXPECT_EQ(static_cast<int64_t>(pages.size()), row.pages);
    EXPECT_EQ(pool_.used_pages(), row.pages);
    pool_.Free(pages);
  }
}

TEST_F(PrefixCacheTest, CountsIdlePagesOfAHit) {
  InsertAndFree("abcdef");
  const std::vector<int32_t> pages = cache_.Acquire(Tokens("abcd"), 3);
  EXPECT_THAT(pages, ElementsAre(0));
  EXPECT_EQ(Find("abcdef").pages, 3);
  EXPECT_EQ(Find("abcdef").idle, 2);
  pool_.Free(pages);
  EXPECT_EQ(Find("abcdef").idle, 3);
}

TEST_F(PrefixCacheTest, APageOfTheSameTokensReplacesTheSequencesOwn) {
  const std::vector<int32_t> first = Insert("abcd");
  EXPECT_THAT(first, ElementsAre(0, 1));
  std::vector<int32_t> pages = *pool_.Allocate(4);
  EXPECT_THAT(pages, ElementsAre(2, 3, 4, 5));
  EXPECT_TRUE(cache_.Insert(Tokens("abcdefg"), pages));
  EXPECT_THAT(pages, ElementsAre(0, 1, 4, 5));  // ef is new, g's page is not full
  EXPECT_EQ(pool_.users(0), 2);
  EXPECT_EQ(pool_.users(2), 0);
  EXPECT_EQ(pool_.shared_pages(), 2);
  EXPECT_EQ(pool_.cached_pages(), 3);
  EXPECT_EQ(pool_.free_pages(), 16 - 4);
  EXPECT_FALSE(cache_.Insert(Tokens("abcdefgh"), pages));
  EXPECT_EQ(pool_.cached_pages(), 4);
}

TEST_F(PrefixCacheTest, InsertLooksAtNewPagesOnly) {
  std::vector<int32_t> pages = Insert("abcdefgh");
  std::vector<int32_t> tokens = Tokens("????????ij");
  pages.push_back(pool_.Allocate(1)->front());
  EXPECT_FALSE(cache_.Insert(tokens, pages));
  EXPECT_EQ(Find("abcdefghij").pages, 5);
  EXPECT_EQ(Find("????????ij").pages, 0);
}

TEST_F(PrefixCacheTest, FindGoesOnBehindAKnownHit) {
  std::vector<int32_t> pages = Insert("abcd");
  const PrefixCache::Hit known = Find("abcdefgh");
  EXPECT_EQ(known.pages, 2);
  InsertAndFree("abcdef");
  // Were the known pages looked up, these tokens would not be found.
  const PrefixCache::Hit longer = cache_.Find(Tokens("????efgh"), 8, known);
  EXPECT_EQ(longer.pages, 3);
  EXPECT_EQ(longer.idle, 1);
  EXPECT_EQ(cache_.Find(Tokens("abcd"), 3, known).pages, 1);  // known reaches beyond the limit
  pool_.Free(pages);
  const std::vector<int32_t> acquired = cache_.Acquire(Tokens("????efgh"), 8, known);
  EXPECT_THAT(acquired, ElementsAre(pages[0], pages[1], longer.last));
  pool_.Free(acquired);

  // Its page goes, and comes back for other tokens.
  EXPECT_EQ(cache_.Evict(16), 3);
  EXPECT_EQ(cache_.Find(Tokens("abcdefgh"), 8, known).pages, 0);
  InsertAndFree("uvwxef");
  EXPECT_EQ(cache_.Find(Tokens("abcdefgh"), 8, known).pages, 0);
}

TEST_F(PrefixCacheTest, EvictsTheLeastRecentlyUsedFirstAndLeavesBeforeTheirParents) {
  InsertAndFree("abcd");
  InsertAndFree("uvwx");
  pool_.Free(cache_.Acquire(Tokens("abcd"), 4));  // uvwx is the older now
  Find("uvwx");                                   // is no use
  const struct {
    std::string gone;
    int64_t abcd, uvwx;  // pages left
  } kRows[] = {{"wx", 2, 1}, {"uv", 2, 0}, {"cd", 1, 0}, {"ab", 0, 0}};
  for (const auto& row : kRows) {
    SCOPED_TRACE(row.gone);
    EXPECT_EQ(cache_.Evict(1), 1);
    EXPECT_EQ(Find("abcd").pages, row.abcd);
    EXPECT_EQ(Find("uvwx").pages, row.uvwx);
  }
  EXPECT_EQ(cache_.Evict(1), 0);
  EXPECT_EQ(pool_.free_pages(), 16);
}

TEST_F(PrefixCacheTest, UsingAPrefixKeepsItLongerThanWhatFollowsIt) {
  InsertAndFree("abcdef");
  InsertAndFree("uv");
  pool_.Free(cache_.Acquire(Tokens("ab"), 2));
  EXPECT_EQ(cache_.Evict(3), 3);  // ef, cd, uv
  EXPECT_EQ(Find("abcdef").pages, 1);
  EXPECT_EQ(Find("uv").pages, 0);
}

TEST_F(PrefixCacheTest, NeverEvictsPagesInUse) {
  InsertAndFree("abcdef");
  const std::vector<int32_t> pages = cache_.Acquire(Tokens("abcd"), 4);
  EXPECT_EQ(cache_.Evict(-1), 0);
  EXPECT_EQ(cache_.Evict(100), 1);
  EXPECT_EQ(Find("abcdef").pages, 2);
  EXPECT_EQ(pool_.used_pages(), 2);
}

TEST_F(PrefixCacheTest, ForksShareFullPagesAndPartWhereTheyDiffer) {
  std::vector<int32_t> a = Insert("abcd");
  std::vector<int32_t> b = a;
  pool_.Share(b);
  for (auto* pages : {&a, &b}) pages->push_back(pool_.Allocate(1)->front());
  EXPECT_FALSE(cache_.Insert(Tokens("abcdef"), a));
  EXPECT_FALSE(cache_.Insert(Tokens("abcdxy"), b));
  pool_.Free(a);
  pool_.Free(b);
  EXPECT_EQ(pool_.cached_pages(), 4);
  EXPECT_EQ(Find("abcdef").pages, 3);
  EXPECT_EQ(Find("abcdxy").pages, 3);
  EXPECT_THAT(cache_.Acquire(Tokens("abcdxy"), 6), ElementsAre(b[0], b[1], b[2]));
}

TEST_F(PrefixCacheTest, VersionTellsOfNewPagesEvictionAndIdleness) {
  std::vector<uint64_t> versions = {cache_.version()};
  const auto changed = [&] {
    versions.push_back(cache_.version());
    return versions.back() > versions[versions.size() - 2];
  };
  std::vector<int32_t> pages = Insert("abcd");
  EXPECT_TRUE(changed());
  cache_.Insert(Tokens("abcd"), pages);
  Find("abcdef");
  pool_.Free(cache_.Acquire(Tokens("ab"), 2));  // in use before and after
  EXPECT_FALSE(changed());
  pool_.Free(pages);
  EXPECT_TRUE(changed());
  pages = cache_.Acquire(Tokens("ab"), 2);
  EXPECT_TRUE(changed());
  cache_.Evict(1);
  EXPECT_TRUE(changed());
}

using PrefixCacheDeathTest = PrefixCacheTest;

TEST_F(PrefixCacheDeathTest, BrokenRulesEndTheProcess) {
  std::vector<int32_t> forked = *pool_.Allocate(1);
  pool_.Share(forked);
  EXPECT_DEATH(cache_.Insert(Tokens("ab"), forked), "forked before");
  EXPECT_DEATH(cache_.Insert(Tokens("abcd"), forked), "without pages");

  const std::vector<int32_t> pages = Insert("uvwx");
  pool_.Free({pages[0]});
  EXPECT_DEATH(cache_.Evict(1), "before the pages behind it");
}

}  // namespace
}  // namespace skein::worker
