// Which pages of a replica's KV cache are free. The leader owns it; every rank of the replica uses
// the same page ids in its own cache.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/types/span.h"

namespace skein::worker {

// Not thread-safe.
class PagePool {
 public:
  explicit PagePool(int64_t pages);

  // `count` pages, lowest ids first, or nothing when fewer are free.
  std::optional<std::vector<int32_t>> Allocate(int64_t count);
  // Gives back pages that Allocate handed out and that were not given back since (CHECKed).
  void Free(absl::Span<const int32_t> pages);

  int64_t free_pages() const { return static_cast<int64_t>(free_.size()); }
  int64_t total_pages() const { return static_cast<int64_t>(used_.size()); }

 private:
  std::vector<int32_t> free_;  // a heap: the lowest id on top
  std::vector<bool> used_;     // by page id
};

}  // namespace skein::worker
