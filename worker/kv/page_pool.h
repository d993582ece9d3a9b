// Which pages of a replica's KV cache are in use, and by how many sequences (paged KV after Kwon
// et al., PagedAttention, 2023). The leader owns it; every rank of the replica uses the same page
// ids in its own cache.
//
// A page is free, used by one or more sequences, or cached: kept by the prefix cache, whether used
// or not. A cached page that nobody uses is idle; the pool knows which of them was used last.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/types/span.h"

namespace skein::worker {

// Not thread-safe. Page ids must be the pool's, and broken rules are CHECKed. Taking a free page or
// giving one back costs the logarithm of the free pages; all else is constant per page.
class PagePool {
 public:
  explicit PagePool(int64_t pages);

  // `count` free pages with one user each, lowest ids first, or nothing when fewer are free.
  std::optional<std::vector<int32_t>> Allocate(int64_t count);
  // Adds a user to each page; each is in use or cached.
  void Share(absl::Span<const int32_t> pages);
  // Takes a user from each page; each is in use. Goes from the last page to the first, so that a
  // sequence's end becomes idle before its beginning.
  void Free(absl::Span<const int32_t> pages);

  // Begin and end the prefix cache's hold on a page. It begins while the page is in use.
  void Cache(int32_t page);
  void Uncache(int32_t page);
  // The page that became idle longest ago; there is one.
  int32_t oldest_idle() const;

  int32_t users(int32_t page) const { return pages_[page].users; }
  bool cached(int32_t page) const { return pages_[page].cached; }

  int64_t total_pages() const { return static_cast<int64_t>(pages_.size()) - 1; }
  int64_t free_pages() const { return static_cast<int64_t>(free_.size()); }
  int64_t used_pages() const { return used_; }      // by one sequence or more
  int64_t shared_pages() const { return shared_; }  // by two or more
  int64_t cached_pages() const { return cached_; }  // used or idle
  int64_t idle_pages() const { return total_pages() - free_pages() - used_pages(); }
  // Grows whenever a page becomes idle or ceases to be.
  uint64_t idle_version() const { return idle_version_; }

 private:
  struct Page {
    int32_t users = 0;
    bool cached = false;
    int32_t older = 0, newer = 0;  // neighbours in the ring of idle pages, while it is idle
  };

  bool valid(int32_t page) const { return page >= 0 && page < total_pages(); }
  void PushFree(int32_t page);
  void LinkIdle(int32_t page);
  void UnlinkIdle(int32_t page);

  // Pages by id, and one entry more that closes the ring of idle pages: its newer neighbour is the
  // oldest.
  std::vector<Page> pages_;
  std::vector<int32_t> free_;  // a heap: the lowest id on top
  int64_t used_ = 0;
  int64_t shared_ = 0;
  int64_t cached_ = 0;
  uint64_t idle_version_ = 0;
};

}  // namespace skein::worker
