#include "worker/kv/prefix_cache.h"

#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "absl/types/span.h"
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
    InsertAgain(text, pages);
    return pages;
  }
  bool InsertAgain(const std::string& text, std::vector<int32_t>& pages,
                   const PrefixPlace& from = {}) {
    PrefixPlace kept = from;
    return cache_.Insert(Tokens(text), /*gone=*/0, pages, kept);
  }
  void InsertAndFree(const std::string& text) { pool_.Free(Insert(text)); }
  PrefixCache::Hit Find(const std::string& text) const {
    return cache_.Find(Tokens(text), static_cast<int64_t>(text.size()));
  }
  std::vector<int32_t> Acquire(const std::string& text, int64_t limit,
                               const PrefixCache::Hit& known = {}) {
    return cache_.Acquire(cache_.Find(Tokens(text), limit, known));
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
    const std::vector<int32_t> pages = Acquire(row.text, row.limit);
    EXPECT_EQ(static_cast<int64_t>(pages.size()), row.pages);
    EXPECT_EQ(pool_.used_pages(), row.pages);
    pool_.Free(pages);
  }
}

TEST_F(PrefixCacheTest, CountsIdlePagesOfAHit) {
  InsertAndFree("abcdef");
  const std::vector<int32_t> pages = Acquire("abcd", 3);
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
  EXPECT_TRUE(InsertAgain("abcdefg", pages));
  EXPECT_THAT(pages, ElementsAre(0, 1, 4, 5));  // ef is new, g's page is not full
  EXPECT_EQ(pool_.users(0), 2);
  EXPECT_EQ(pool_.users(2), 0);
  EXPECT_EQ(pool_.shared_pages(), 2);
  EXPECT_EQ(pool_.cached_pages(), 3);
  EXPECT_EQ(pool_.free_pages(), 16 - 4);
  EXPECT_FALSE(InsertAgain("abcdefgh", pages));
  EXPECT_EQ(pool_.cached_pages(), 4);
}

TEST_F(PrefixCacheTest, InsertGoesOnWhereItEnded) {
  std::vector<int32_t> pages = Insert("abcdefgh");
  const PrefixPlace kept = Find("abcdefgh");
  pages.push_back(pool_.Allocate(1)->front());
  // Were the first pages looked up, these tokens would be another prefix.
  EXPECT_FALSE(InsertAgain("????????ij", pages, kept));
  EXPECT_EQ(Find("abcdefghij").pages, 5);
  EXPECT_EQ(Find("????????ij").pages, 0);
  EXPECT_EQ(cache_.Back(kept, 2).node, Find("abcd").node);
  EXPECT_EQ(cache_.Back(kept, 0).node, -1);

  pool_.Free(pages);
  cache_.Evict(16);
  EXPECT_EQ(cache_.Back(kept, 4).pages, 0);  // it is gone
  pages = *pool_.Allocate(4);
  EXPECT_FALSE(InsertAgain("abcdefgh", pages, kept));
  EXPECT_EQ(Find("abcdefgh").pages, 4);
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
  const std::vector<int32_t> acquired = Acquire("????efgh", 8, known);
  EXPECT_THAT(acquired, ElementsAre(pages[0], pages[1], acquired[2]));
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
  pool_.Free(Acquire("abcd", 4));  // uvwx is the older now
  Find("uvwx");                    // is no use
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
  pool_.Free(Acquire("ab", 2));
  EXPECT_EQ(cache_.Evict(3), 3);  // ef, cd, uv
  EXPECT_EQ(Find("abcdef").pages, 1);
  EXPECT_EQ(Find("uv").pages, 0);
}

TEST_F(PrefixCacheTest, NeverEvictsPagesInUse) {
  InsertAndFree("abcdef");
  const std::vector<int32_t> pages = Acquire("abcd", 4);
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
  EXPECT_FALSE(InsertAgain("abcdef", a));
  EXPECT_FALSE(InsertAgain("abcdxy", b));
  pool_.Free(a);
  pool_.Free(b);
  EXPECT_EQ(pool_.cached_pages(), 4);
  EXPECT_EQ(Find("abcdef").pages, 3);
  EXPECT_EQ(Find("abcdxy").pages, 3);
  EXPECT_THAT(Acquire("abcdxy", 6), ElementsAre(b[0], b[1], b[2]));
}

TEST_F(PrefixCacheTest, VersionTellsOfNewPagesEvictionAndIdleness) {
  std::vector<uint64_t> versions = {cache_.version()};
  const auto changed = [&] {
    versions.push_back(cache_.version());
    return versions.back() > versions[versions.size() - 2];
  };
  std::vector<int32_t> pages = Insert("abcd");
  EXPECT_TRUE(changed());
  InsertAgain("abcd", pages);
  Find("abcdef");
  pool_.Free(Acquire("ab", 2));  // in use before and after
  EXPECT_FALSE(changed());
  pool_.Free(pages);
  EXPECT_TRUE(changed());
  pages = Acquire("ab", 2);
  EXPECT_TRUE(changed());
  cache_.Evict(1);
  EXPECT_TRUE(changed());
}

// A row sees 4 positions: behind page 3 it needs pages 1 (half of it) and 2.
class WindowTest : public ::testing::Test {
 protected:
  struct Sequence {
    std::vector<int32_t> pages;
    int64_t gone = 0;
    PrefixPlace kept;
  };

  void Compute(const std::string& text, Sequence& sequence) {
    const int64_t size = (std::ssize(text) + kPageSize - 1) / kPageSize;
    for (int64_t i = std::ssize(sequence.pages); i < size; ++i) {
      sequence.pages.push_back(pool_.Allocate(1)->front());
    }
    cache_.Insert(Tokens(text), sequence.gone, sequence.pages, sequence.kept);
  }
  void GiveBack(int64_t first, Sequence& sequence) {
    for (; sequence.gone < first; ++sequence.gone) {
      pool_.Free({sequence.pages[sequence.gone]});
    }
  }
  void End(Sequence& sequence) {
    pool_.Free(absl::MakeSpan(sequence.pages).subspan(sequence.gone));
    sequence = {};
  }
  PrefixCache::Hit Find(const std::string& text, const PrefixCache::Hit& known = {}) const {
    return cache_.Find(Tokens(text), std::ssize(text), known);
  }

  PagePool pool_{16};
  PrefixCache cache_{&pool_, kPageSize, /*window=*/4};
};

TEST_F(WindowTest, TellsTheFirstPageThatIsSeen) {
  for (const auto& [position, first] :
       {std::pair{0, 0}, {3, 0}, {4, 0}, {5, 1}, {6, 1}, {7, 2}, {8, 2}}) {
    EXPECT_EQ(cache_.FirstSeen(position), first) << position;
  }
}

TEST_F(WindowTest, AHitNeedsTheWindowBeforeItOnly) {
  Sequence sequence;
  Compute("abcdefgh", sequence);
  GiveBack(2, sequence);
  EXPECT_EQ(cache_.Evict(1), 1);  // "ab"
  EXPECT_EQ(pool_.free_pages(), 13);
  PrefixCache::Hit hit = Find("abcdefgh");
  EXPECT_EQ(hit.pages, 4);
  EXPECT_EQ(hit.first, 2);
  EXPECT_EQ(hit.idle, 0);
  hit = Find("abcdefxx");
  EXPECT_EQ(hit.pages, 3);
  EXPECT_EQ(hit.first, 1);
  EXPECT_EQ(hit.idle, 1);
  EXPECT_EQ(Find("abcd").pages, 0);  // its window begins with "ab"
  EXPECT_EQ(Find("xbcdefgh").pages, 0);

  const std::vector<int32_t> pages = cache_.Acquire(Find("abcdefxx"));
  EXPECT_THAT(pages, ElementsAre(0, sequence.pages[1], sequence.pages[2]));
  EXPECT_EQ(pool_.users(sequence.pages[1]), 1);
  EXPECT_EQ(pool_.users(sequence.pages[2]), 2);
  pool_.Free(absl::MakeSpan(pages).subspan(1));
  EXPECT_EQ(cache_.Evict(1), 1);  // "cd": 3 pages are no prefix any more, 4 are
  EXPECT_EQ(Find("abcdefxx").pages, 0);
  EXPECT_EQ(Find("abcdefgh").pages, 4);
}

TEST_F(WindowTest, AKnownHitThatLostAPageOfItsWindowIsNone) {
  Sequence sequence;
  Compute("abcdef", sequence);
  const PrefixCache::Hit known = Find("abcdef");
  EXPECT_EQ(known.pages, 3);
  Compute("abcdefgh", sequence);
  EXPECT_EQ(Find("abcdefgh", known).pages, 4);
  GiveBack(2, sequence);
  cache_.Evict(2);
  EXPECT_EQ(Find("abcdef", known).pages, 0);
  EXPECT_EQ(Find("abcdefgh", known).pages, 4);
}

TEST_F(WindowTest, PagesThatWereTakenAwayComeBackWithTheirTokens) {
  Sequence sequence;
  Compute("abcdefgh", sequence);
  GiveBack(2, sequence);
  EXPECT_EQ(cache_.Evict(2), 2);
  Sequence other;
  Compute("abcd", other);  // no hit: its pages take the empty places
  EXPECT_EQ(pool_.cached_pages(), 4);
  EXPECT_EQ(Find("abcd").pages, 2);
  EXPECT_EQ(Find("abcdef").pages, 3);
  Compute("abcdefgh", other);
  EXPECT_EQ(other.pages[3], sequence.pages[3]);
}

TEST_F(WindowTest, SequencesThatGavePagesBackGoOnKeepingOthers) {
  Sequence sequence;
  Compute("abcdefgh", sequence);
  GiveBack(2, sequence);
  cache_.Evict(16);
  Compute("abcdefghij", sequence);
  EXPECT_EQ(Find("abcdefghij").pages, 5);
  // So do those that do not know where they were, as after a swap.
  sequence.kept = {};
  GiveBack(3, sequence);
  Compute("abcdefghijkl", sequence);
  EXPECT_EQ(Find("abcdefghijkl").pages, 6);
  // And where nothing is left of what was before.
  End(sequence);
  cache_.Evict(16);
  EXPECT_EQ(cache_.nodes(), 0);
  sequence = {.pages = {0, 0, 0}, .gone = 3};
  Compute("abcdefghij", sequence);
  EXPECT_EQ(Find("abcdefghij").pages, 5);
  EXPECT_EQ(Find("abcdefgh").pages, 0);
}

TEST_F(WindowTest, NodesGoWithTheLastPageBehindThem) {
  Sequence sequence;
  Compute("abcdefghij", sequence);
  GiveBack(4, sequence);
  EXPECT_EQ(cache_.Evict(16), 4);
  EXPECT_EQ(cache_.nodes(), 5);
  End(sequence);
  EXPECT_EQ(cache_.Evict(16), 1);
  EXPECT_EQ(cache_.nodes(), 0);
  EXPECT_EQ(pool_.free_pages(), 16);
}

// A text of any length leaves a page; the tree stops to grow, and all goes on.
TEST_F(WindowTest, NodesHaveABound) {
  Sequence sequence;
  std::string text;
  for (int page = 0; page < 1000; ++page) {
    text += "ab";
    Compute(text, sequence);
    GiveBack(cache_.FirstSeen(std::ssize(text)), sequence);
    cache_.Evict(16);
    ASSERT_LE(cache_.nodes(), 16 * 8);
  }
  EXPECT_GE(pool_.free_pages(), 13);
  End(sequence);
  cache_.Evict(16);
  EXPECT_EQ(cache_.nodes(), 0);
  EXPECT_EQ(pool_.free_pages(), 16);
  Compute("abcd", sequence);
  EXPECT_EQ(Find("abcd").pages, 2);
}

// A fork shares pages that were kept from the tree by its bound; neither of them is kept later.
TEST_F(WindowTest, ForksOfWhatHadNoRoomAreCutOff) {
  PrefixCache cache(&pool_, kPageSize, /*window=*/4, /*nodes_of_page=*/1);  // 16 nodes
  const auto compute = [&](const std::string& text, Sequence& sequence) {
    while (std::ssize(sequence.pages) * kPageSize < std::ssize(text)) {
      if (pool_.free_pages() == 0) cache.Evict(1);
      sequence.pages.push_back(pool_.Allocate(1)->front());
    }
    cache.Insert(Tokens(text), sequence.gone, sequence.pages, sequence.kept);
  };
  Sequence other;
  std::string text;
  for (int page = 0; page < 14; ++page) {
    text += "ab";
    compute(text, other);
    GiveBack(cache.FirstSeen(std::ssize(text)), other);
  }
  Sequence parent;
  compute("uvwxyz", parent);  // three more than there is room for
  EXPECT_EQ(parent.kept.pages, PrefixPlace::kCutOff);
  EXPECT_EQ(cache.nodes(), 14);
  Sequence fork = parent;
  fork.kept = cache.Back(parent.kept, 3);
  pool_.Share(fork.pages);
  End(other);
  cache.Evict(16);
  EXPECT_EQ(cache.nodes(), 0);
  compute("uvwxyz12", fork);
  EXPECT_EQ(fork.kept.pages, PrefixPlace::kCutOff);
  EXPECT_EQ(cache.nodes(), 0);
  parent.kept = {};
  compute("uvwxyz34", parent);
  EXPECT_EQ(cache.nodes(), 0);
  // Alone again, and looked at anew, as after a swap.
  End(fork);
  parent.kept = {};
  compute("uvwxyz34", parent);
  EXPECT_EQ(cache.Find(Tokens("uvwxyz34"), 8).pages, 4);
}

using PrefixCacheDeathTest = PrefixCacheTest;

TEST_F(PrefixCacheDeathTest, BrokenRulesEndTheProcess) {
  std::vector<int32_t> forked = *pool_.Allocate(1);
  pool_.Share(forked);
  EXPECT_DEATH(InsertAgain("ab", forked), "forked before");
  EXPECT_DEATH(InsertAgain("abcd", forked), "without pages");

  const std::vector<int32_t> pages = Insert("uvwx");
  pool_.Free({pages[0]});
  EXPECT_DEATH(cache_.Evict(1), "before the pages behind it");
}

}  // namespace
}  // namespace skein::worker
