// Tells which pages hold which of a replica's sequences: sharing, copy-on-write, swapping. It is
// bookkeeping of the leader; copies go to the ranks with the next order.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "kernels/ops/batch.h"
#include "worker/kv/page_pool.h"
#include "worker/kv/prefix_cache.h"

namespace skein::worker {

// Lists the pages of one sequence, by position / page_size.
struct PageTable {
  std::vector<int32_t> pages;
  std::vector<int32_t> swapped;  // in the swap pool, while `pages` is empty
  int64_t gone = 0;              // leading pages, given back behind a window: the ids tell nothing
  int64_t announced = 0;         // leading pages that the ranks know
  PrefixPlace kept;              // leading pages that are known to be the prefix cache's, too

  absl::Span<const int32_t> Held() const {
    if (pages.empty()) return {};  // they are swapped out
    return absl::MakeConstSpan(pages).subspan(gone);
  }
  int64_t held() const { return static_cast<int64_t>(Held().size()); }
};

// Not thread-safe.
class PageTables {
 public:
  // window: how many positions a row attends to at most, in any layer; 0: to all before it.
  PageTables(int64_t pages, int64_t swap_pages, int64_t page_size, int64_t window = 0);

  // Finds what the prefix cache holds of the first `limit` tokens; `known` is an earlier answer.
  PrefixCache::Hit Find(absl::Span<const int32_t> tokens, int64_t limit,
                        const PrefixCache::Hit& known) const {
    return cache_.Find(tokens, limit, known);
  }
  // Gives an empty table these pages.
  void Acquire(PageTable& table, absl::Span<const int32_t> tokens, int64_t limit,
               const PrefixCache::Hit& known);
  // Makes an empty table share the pages of another one's first `tokens` tokens, with the last
  // page, which may be partly filled, and without those that the other one gave back.
  void Fork(const PageTable& from, int64_t tokens, PageTable& to);

  // Tells whether the page at `position` is there and is not this sequence's alone.
  bool CopiesOnWrite(const PageTable& table, int64_t position) const;
  // Makes positions [begin, end) writable: adds pages, and replaces the page of `begin` by a copy
  // where it is shared. Evicts what only the prefix cache uses. Internal when there are not enough.
  absl::Status Extend(PageTable& table, int64_t begin, int64_t end,
                      std::vector<kernels::PageCopy>& copies);
  // Takes positions back, so that `tokens` are left. Gives up this sequence's use of the pages
  // behind them, as the ranks do that are told the length. The last page left may still hold what
  // was taken back; writing to it copies it where it is shared or cached. Tokens that may be taken
  // back must not be Kept: a later prompt would find them. Pages that GiveBack gave up do not come
  // back.
  void Truncate(PageTable& table, int64_t tokens);
  // Gives up the pages that no row from `position` on sees, which orders after this one may use.
  void GiveBack(PageTable& table, int64_t position);
  // Keeps the full pages that hold `tokens` for later prompts; the table keeps them, too. A page
  // that the cache has already takes the place of the table's own.
  void Keep(PageTable& table, absl::Span<const int32_t> tokens);

  absl::Status SwapOut(PageTable& table, std::vector<kernels::PageCopy>& copies);
  absl::Status SwapIn(PageTable& table, std::vector<kernels::PageCopy>& copies);
  // Gives everything back.
  void Release(PageTable& table);

  // Counts the pages of the table that nobody else uses. Costs the logarithm of the table's pages,
  // with a window as many looks as it has pages.
  int64_t CountOwn(const PageTable& table) const;
  // Returns what the ranks do not know yet of a table, and counts it as known. Where nothing is
  // new, `pages` is empty.
  kernels::SlotUpdate Announce(int32_t slot, PageTable& table);

  // Counts pages that can be had: free ones, and those that the prefix cache alone uses.
  int64_t available() const { return pool_.free_pages() + pool_.idle_pages(); }
  const PagePool& pool() const { return pool_; }
  const PagePool& swap() const { return swap_; }
  // Grows when Find may answer otherwise.
  uint64_t version() const { return cache_.version(); }

 private:
  absl::Status Allocate(int64_t count, std::vector<int32_t>& pages);
  int64_t PagesOf(int64_t tokens) const { return (tokens + page_size_ - 1) / page_size_; }

  const int64_t page_size_;
  const int64_t window_;
  PagePool pool_;
  PagePool swap_;
  PrefixCache cache_;
};

}  // namespace skein::worker
