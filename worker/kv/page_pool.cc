#include "worker/kv/page_pool.h"

#include <algorithm>
#include <functional>
#include <numeric>

#include "absl/base/internal/raw_logging.h"

namespace skein::worker {

PagePool::PagePool(int64_t pages) : free_(pages), used_(pages, false) {
  std::iota(free_.begin(), free_.end(), 0);  // ascending is a valid min-heap
}

std::optional<std::vector<int32_t>> PagePool::Allocate(int64_t count) {
  if (count > free_pages()) return std::nullopt;
  std::vector<int32_t> pages;
  pages.reserve(count);
  for (int64_t i = 0; i < count; ++i) {
    std::pop_heap(free_.begin(), free_.end(), std::greater<>());
    pages.push_back(free_.back());
    used_[free_.back()] = true;
    free_.pop_back();
  }
  return pages;
}

void PagePool::Free(absl::Span<const int32_t> pages) {
  for (int32_t page : pages) {
    ABSL_RAW_CHECK(page >= 0 && page < total_pages() && used_[page],
                   "a page was freed that is not in use");
    used_[page] = false;
    free_.push_back(page);
    std::push_heap(free_.begin(), free_.end(), std::greater<>());
  }
}

}  // namespace skein::worker
