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

class TruncateTest : public ::testing::Test {
 protected:
  PageTable Computed(const std::vector<int32_t>& tokens) {
    PageTable table;
    SKEIN_EXPECT_OK(tables_.Extend(table, 0, static_cast<int64_t>(tokens.size()), copies_));
    tables_.Announce(0, table);
    return table;
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
  EXPECT_EQ(tables_.Find({1, 2, 3, 4, 5, 6, 9, 9}, 8, {}).last, table.pages[1]);
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
  EXPECT_EQ(tables_.Find(other, 8, {}).last, table.pages[1]);
}

}  // namespace
}  // namespace skein::worker
