#include "worker/engine/page_tables.h"

#include <algorithm>
#include <random>
#include <vector>

#include "base/test_util.h"

namespace skein::worker {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr int64_t kPage = 4;

struct Sequence {
  std::vector<int32_t> tokens;
  int64_t computed = 0;
  PageTable table;
};

// Sequences come, fork, grow, are kept for later prompts and go, in any order.
TEST(PageTablesTest, WhatIsOwnIsCountedAsByALookAtEachPage) {
  PageTables tables(400, 0, kPage);
  std::vector<Sequence> sequences;
  std::mt19937 random(1);
  const auto below = [&](size_t n) { return static_cast<int64_t>(random() % n); };
  const auto check = [&] {
    for (const Sequence& sequence : sequences) {
      const std::vector<int32_t>& pages = sequence.table.pages;
      ASSERT_EQ(tables.CountOwn(sequence.table),
                std::count_if(pages.begin(), pages.end(),
                              [&](int32_t page) { return tables.pool().users(page) == 1; }));
    }
  };
  int64_t shared = 0;
  for (int round = 0; round < 4000; ++round) {
    if (sequences.size() < 12 && below(3) == 0) {
      Sequence& sequence = sequences.emplace_back();
      // Few beginnings make prefixes that are found.
      sequence.tokens.assign(1 + below(40), static_cast<int32_t>(below(3)));
      const auto limit = static_cast<int64_t>(sequence.tokens.size()) - 1;
      tables.Acquire(sequence.table, sequence.tokens, limit, {});
      sequence.computed = static_cast<int64_t>(sequence.table.pages.size()) * kPage;
    } else if (!sequences.empty()) {
      const int64_t i = below(sequences.size());
      if (below(8) == 0) {
        tables.Release(sequences[i].table);
        sequences.erase(sequences.begin() + i);
      } else if (below(6) == 0 && sequences.size() < 12 && sequences[i].computed > 0) {
        Sequence fork = {.tokens = sequences[i].tokens, .computed = sequences[i].computed - 1};
        tables.Fork(sequences[i].table, fork.computed, fork.table);
        sequences.push_back(fork);
      } else if (below(6) == 0) {
        // The sequence takes back what was computed and known beyond the prompt.
        Sequence& sequence = sequences[i];
        sequence.computed -= std::min<int64_t>(sequence.computed, below(6));
        tables.Truncate(sequence.table, sequence.computed);
        for (int64_t known = below(3);
             known > 0 && sequence.tokens.size() > 1 &&
             static_cast<int64_t>(sequence.tokens.size()) > sequence.computed;
             --known) {
          sequence.tokens.pop_back();
        }
      } else {
        Sequence& sequence = sequences[i];
        const auto known = static_cast<int64_t>(sequence.tokens.size());
        if (sequence.computed == known) sequence.tokens.push_back(static_cast<int32_t>(below(2)));
        const auto all = static_cast<int64_t>(sequence.tokens.size());
        const int64_t end = sequence.computed + 1 + below(all - sequence.computed);
        std::vector<kernels::PageCopy> copies;
        SKEIN_ASSERT_OK(tables.Extend(sequence.table, sequence.computed, end, copies));
        sequence.computed = end;
        tables.Keep(sequence.table, absl::MakeSpan(sequence.tokens).first(end));
      }
    }
    shared = std::max(shared, tables.pool().shared_pages());
    ASSERT_NO_FATAL_FAILURE(check()) << round;
  }
  EXPECT_GT(shared, 10);
}

// A row sees 6 positions, of pages of 4.
class GiveBackTest : public ::testing::Test {
 protected:
  static std::vector<int32_t> Tokens(int count) {
    std::vector<int32_t> tokens(count);
    for (int i = 0; i < count; ++i) tokens[i] = i;
    return tokens;
  }
  // Computes tokens up to `end`, keeps them, and gives back what is behind the window.
  void Compute(int64_t end, PageTable& table) {
    const int64_t begin = computed_;
    SKEIN_EXPECT_OK(tables_.Extend(table, begin, end, copies_));
    computed_ = end;
    tables_.Keep(table, absl::MakeSpan(tokens_).first(end));
    tables_.GiveBack(table, end);
  }
  const std::vector<int32_t> tokens_ = Tokens(40);
  int64_t computed_ = 0;
  PageTables tables_{8, 4, kPage, /*window=*/6};
  std::vector<kernels::PageCopy> copies_;
};

TEST_F(GiveBackTest, PagesThatNoRowSeesAreOthers) {
  PageTable table;
  for (const auto& [end, gone] : {std::pair{4, 0}, {8, 0}, {9, 1}, {12, 1}, {13, 2}, {40, 8}}) {
    Compute(end, table);
    EXPECT_EQ(table.gone, gone) << end;
    EXPECT_EQ(tables_.CountOwn(table), table.held()) << end;
    EXPECT_EQ(tables_.pool().used_pages(), table.held()) << end;
    EXPECT_EQ(tables_.available(), 8 - table.held()) << end;
  }
  EXPECT_EQ(table.pages.size(), 10u);
  EXPECT_EQ(tables_.pool().used_pages(), 2);
  tables_.GiveBack(table, 20);  // an earlier position gives nothing
  EXPECT_EQ(table.gone, 8);
  tables_.Release(table);
  EXPECT_EQ(tables_.available(), 8);
}

TEST_F(GiveBackTest, WhatIsSwappedIsWhatIsHeld) {
  PageTable table;
  Compute(15, table);
  ASSERT_EQ(table.gone, 2);
  const std::vector<int32_t> before(table.pages.begin() + 2, table.pages.end());
  SKEIN_ASSERT_OK(tables_.SwapOut(table, copies_));
  EXPECT_EQ(table.swapped.size(), 2u);
  EXPECT_EQ(table.gone, 2);
  EXPECT_THAT(
      copies_,
      ElementsAre(
          kernels::PageCopy{kernels::PageCopy::Kind::kSwapOut, before[0], table.swapped[0]},
          kernels::PageCopy{kernels::PageCopy::Kind::kSwapOut, before[1], table.swapped[1]}));
  copies_.clear();
  const std::vector<int32_t> places = table.swapped;
  SKEIN_ASSERT_OK(tables_.SwapIn(table, copies_));
  ASSERT_EQ(table.pages.size(), 4u);
  EXPECT_THAT(
      copies_,
      ElementsAre(kernels::PageCopy{kernels::PageCopy::Kind::kSwapIn, places[0], table.pages[2]},
                  kernels::PageCopy{kernels::PageCopy::Kind::kSwapIn, places[1], table.pages[3]}));
  // The ranks get an id for every place, also where no page is.
  const kernels::SlotUpdate update = tables_.Announce(0, table);
  EXPECT_EQ(update.first_page, 0);
  EXPECT_THAT(update.pages, ElementsAre(0, 0, table.pages[2], table.pages[3]));
  Compute(24, table);
  EXPECT_EQ(tables_.Find(tokens_, 24, {}).pages, 6);
}

TEST_F(GiveBackTest, ForksAndHitsHoldTheWindowAlone) {
  PageTable table, fork, hit;
  Compute(15, table);
  tables_.Fork(table, 14, fork);
  EXPECT_EQ(fork.gone, 2);
  EXPECT_EQ(fork.held(), 2);
  EXPECT_EQ(tables_.pool().shared_pages(), 2);
  EXPECT_EQ(tables_.CountOwn(fork), 0);
  tables_.Acquire(hit, tokens_, 13, {});
  EXPECT_EQ(hit.gone, 1);
  EXPECT_EQ(hit.held(), 2);
  EXPECT_EQ(tables_.CountOwn(hit), 1);  // the page that the others gave back
  // What is taken back is freed as far as it was held.
  tables_.Truncate(table, 3);
  EXPECT_EQ(table.held(), 0);
  for (PageTable* of : {&table, &fork, &hit}) tables_.Release(*of);
  EXPECT_EQ(tables_.available(), 8);
}

// Whose own pages are in the middle of those that others share.
TEST_F(GiveBackTest, OwnPagesAreCountedOneByOne) {
  PageTable table, behind, before;
  Compute(15, table);
  tables_.Fork(table, 15, behind);
  tables_.Acquire(before, tokens_, 9, {});
  EXPECT_EQ(before.held(), 2);  // pages 0 and 1, which only it uses
  EXPECT_EQ(tables_.CountOwn(before), 2);
  EXPECT_EQ(tables_.CountOwn(table), 0);
  tables_.Release(behind);
  EXPECT_EQ(tables_.CountOwn(table), 2);
}

class TruncateTest : public ::testing::Test {
 protected:
  PageTable Computed(const std::vector<int32_t>& tokens) {
    PageTable table;
    SKEIN_EXPECT_OK(tables_.Extend(table, 0, static_cast<int64_t>(tokens.size()), copies_));
    tables_.Announce(0, table);
    return table;
  }
  // Of what the cache has of the tokens.
  int32_t LastPageOf(const std::vector<int32_t>& tokens) {
    PageTable table;
    tables_.Acquire(table, tokens, static_cast<int64_t>(tokens.size()), {});
    const int32_t last = table.pages.back();
    tables_.Release(table);
    return last;
  }
  PageTables tables_{8, 0, kPage};
  std::vector<kernels::PageCopy> copies_;
};

TEST_F(TruncateTest, PagesBehindTheEndAreFree) {
  PageTable table = Computed(std::vector<int32_t>(11, 1));
  const std::vector<int32_t> pages = table.pages;
  for (const auto& [tokens, left] : {std::pair{12, 3}, {9, 3}, {8, 2}, {5, 2}, {4, 1}, {0, 0}}) {
    tables_.Truncate(table, tokens);
    EXPECT_EQ(table.pages, std::vector(pages.begin(), pages.begin() + left)) << tokens;
    EXPECT_EQ(tables_.pool().free_pages(), 8 - left) << tokens;
    EXPECT_TRUE(tables_.Announce(0, table).pages.empty()) << tokens;
  }
  // Others take what was given up. Ranks are told what comes in its place, no more.
  PageTable again = Computed(std::vector<int32_t>(11, 1));
  tables_.Truncate(again, 5);
  const PageTable other = Computed({1});
  SKEIN_ASSERT_OK(tables_.Extend(again, 5, 10, copies_));
  EXPECT_THAT(copies_, IsEmpty());
  const kernels::SlotUpdate update = tables_.Announce(0, again);
  EXPECT_EQ(update.first_page, 2);
  EXPECT_EQ(update.pages, std::vector(again.pages.begin() + 2, again.pages.end()));
  EXPECT_NE(again.pages[2], other.pages[0]);
}

TEST_F(TruncateTest, SharedPagesStayTheOthers) {
  PageTable parent = Computed(std::vector<int32_t>(10, 1));
  PageTable fork;
  tables_.Fork(parent, 10, fork);
  tables_.Truncate(fork, 6);
  EXPECT_EQ(tables_.pool().used_pages(), 3);
  EXPECT_EQ(tables_.pool().shared_pages(), 2);
  // Half of the last page left is still the parent's.
  SKEIN_ASSERT_OK(tables_.Extend(fork, 6, 7, copies_));
  EXPECT_THAT(copies_, ElementsAre(kernels::PageCopy{kernels::PageCopy::Kind::kWithin,
                                                     parent.pages[1], fork.pages[1]}));
  tables_.Truncate(parent, 0);
  EXPECT_EQ(tables_.pool().used_pages(), 2);
  EXPECT_EQ(tables_.CountOwn(fork), 2);
}

TEST_F(TruncateTest, KeptPagesAreNotWritten) {
  const std::vector<int32_t> tokens = {1, 2, 3, 4, 5, 6, 7, 8};
  PageTable table = Computed(tokens);
  tables_.Keep(table, tokens);
  const int32_t kept = table.pages[1];
  tables_.Truncate(table, 6);
  SKEIN_ASSERT_OK(tables_.Extend(table, 6, 8, copies_));
  EXPECT_THAT(copies_, ElementsAre(kernels::PageCopy{kernels::PageCopy::Kind::kWithin, kept,
                                                     table.pages[1]}));
  tables_.Keep(table, {1, 2, 3, 4, 5, 6, 9, 9});
  EXPECT_EQ(tables_.Find(tokens, 8, {}).pages, 2);
  EXPECT_EQ(LastPageOf({1, 2, 3, 4, 5, 6, 9, 9}), table.pages[1]);
  tables_.Release(table);
  EXPECT_EQ(tables_.available(), 8);
}

TEST_F(TruncateTest, PagesInThePlaceOfKeptOnesAreKept) {
  const std::vector<int32_t> tokens = {1, 2, 3, 4, 5, 6, 7, 8}, other = {1, 2, 3, 4, 9, 9, 9, 9};
  PageTable table = Computed(tokens);
  tables_.Keep(table, tokens);
  tables_.Truncate(table, 4);
  SKEIN_ASSERT_OK(tables_.Extend(table, 4, 8, copies_));
  tables_.Keep(table, other);
  EXPECT_EQ(tables_.Find(tokens, 8, {}).pages, 2);
  EXPECT_EQ(LastPageOf(other), table.pages[1]);
}

}  // namespace
}  // namespace skein::worker
