#include "worker/kv/page_pool.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <utility>

#include "absl/base/internal/raw_logging.h"

namespace skein::worker {

PagePool::PagePool(int64_t pages) : pages_(pages + 1), free_(pages) {
  pages_.back().older = pages_.back().newer = static_cast<int32_t>(pages);
  std::iota(free_.begin(), free_.end(), 0);  // ascending is a valid min-heap
}

std::optional<std::vector<int32_t>> PagePool::Allocate(int64_t count) {
  if (count > free_pages()) return std::nullopt;
  std::vector<int32_t> pages;
  pages.reserve(count);
  for (int64_t i = 0; i < count; ++i) {
    std::pop_heap(free_.begin(), free_.end(), std::greater<>());
    pages.push_back(free_.back());
    free_.pop_back();
    pages_[pages.back()].users = 1;
  }
  used_ += count;
  return pages;
}

void PagePool::Share(absl::Span<const int32_t> pages) {
  for (int32_t id : pages) {
    ABSL_RAW_CHECK(valid(id) && (users(id) > 0 || cached(id)), "a free page was shared");
    const int32_t users = ++pages_[id].users;
    if (users == 1) {
      ++used_;
      UnlinkIdle(id);
    } else if (users == 2) {
      ++shared_;
    }
  }
}

void PagePool::Free(absl::Span<const int32_t> pages) {
  for (auto id = pages.rbegin(); id != pages.rend(); ++id) {
    ABSL_RAW_CHECK(valid(*id) && users(*id) > 0, "a page was freed that is not in use");
    const int32_t users = --pages_[*id].users;
    if (users == 1) {
      --shared_;
    } else if (users == 0) {
      --used_;
      if (cached(*id)) {
        LinkIdle(*id);
      } else {
        PushFree(*id);
      }
    }
  }
}

void PagePool::Cache(int32_t page) {
  ABSL_RAW_CHECK(valid(page) && users(page) > 0 && !cached(page),
                 "a page was cached that is not in use or cached already");
  pages_[page].cached = true;
  ++cached_;
}

void PagePool::Uncache(int32_t page) {
  ABSL_RAW_CHECK(valid(page) && cached(page), "a page was uncached that is not cached");
  pages_[page].cached = false;
  --cached_;
  if (users(page) > 0) return;
  UnlinkIdle(page);
  PushFree(page);
}

int32_t PagePool::oldest_idle() const {
  ABSL_RAW_CHECK(idle_pages() > 0, "no page is idle");
  return pages_.back().newer;
}

void PagePool::PushFree(int32_t page) {
  free_.push_back(page);
  std::push_heap(free_.begin(), free_.end(), std::greater<>());
}

void PagePool::LinkIdle(int32_t page) {
  const auto end = static_cast<int32_t>(total_pages());
  const int32_t newest = pages_[end].older;
  pages_[page].older = newest;
  pages_[page].newer = end;
  pages_[newest].newer = pages_[end].older = page;
  ++idle_version_;
}

void PagePool::UnlinkIdle(int32_t page) {
  const auto [older, newer] = std::pair(pages_[page].older, pages_[page].newer);
  pages_[older].newer = newer;
  pages_[newer].older = older;
  ++idle_version_;
}

}  // namespace skein::worker
