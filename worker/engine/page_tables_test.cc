#include "worker/engine/page_tables.h"

#include <algorithm>
#include <random>
#include <vector>

#include "base/test_util.h"

namespace skein::worker {
namespace {

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
      // A few beginnings, so that prefixes are found.
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

}  // namespace
}  // namespace skein::worker
