#include "worker/kv/prefix_cache.h"

#include <algorithm>

#include "absl/base/internal/raw_logging.h"

namespace skein::worker {

PrefixCache::PrefixCache(PagePool* pool, int64_t page_size)
    : pool_(pool),
      page_size_(page_size),
      nodes_(pool->total_pages()),
      tokens_(pool->total_pages() * page_size) {
  children_.reserve(pool->total_pages());
}

PrefixCache::Hit PrefixCache::Find(absl::Span<const int32_t> tokens, int64_t limit,
                                   const Hit& known) const {
  const int64_t full = std::min<int64_t>(tokens.size(), limit) / page_size_;
  Hit hit;
  // A page is in the tree only as long as all pages before it are.
  if (known.pages > 0 && known.pages <= full && nodes_[known.last].insert == known.insert) {
    hit = known;
  }
  while (hit.pages < full) {
    const int32_t child = Child(hit.last, tokens, hit.pages);
    if (child == kNone) break;
    hit.last = child;
    ++hit.pages;
  }
  hit.insert = hit.pages > 0 ? nodes_[hit.last].insert : 0;
  hit.idle = 0;
  for (int32_t page = hit.last; page != kNone && pool_->users(page) == 0;
       page = nodes_[page].parent) {
    ++hit.idle;
  }
  return hit;
}

std::vector<int32_t> PrefixCache::Acquire(absl::Span<const int32_t> tokens, int64_t limit,
                                          const Hit& known) {
  const Hit hit = Find(tokens, limit, known);
  std::vector<int32_t> pages(hit.pages);
  int32_t page = hit.last;
  for (auto slot = pages.rbegin(); slot != pages.rend(); ++slot) {
    *slot = page;
    page = nodes_[page].parent;
  }
  pool_->Share(pages);
  return pages;
}

bool PrefixCache::Insert(absl::Span<const int32_t> tokens, std::vector<int32_t>& pages) {
  const int64_t full = static_cast<int64_t>(tokens.size()) / page_size_;
  ABSL_RAW_CHECK(full <= static_cast<int64_t>(pages.size()), "a sequence has tokens without pages");
  // A cached page of a sequence is the tree's, and so are all before it: the rest is new.
  int64_t i = full;
  while (i > 0 && !pool_->cached(pages[i - 1])) --i;
  bool changed = false;
  for (; i < full; ++i) {
    ABSL_RAW_CHECK(pool_->users(pages[i]) == 1, "a sequence was forked before it was inserted");
    const int32_t parent = i > 0 ? pages[i - 1] : kNone;
    const int32_t child = Child(parent, tokens, i);
    if (child == kNone) {
      Add(parent, tokens.subspan(i * page_size_, page_size_), pages[i]);
      continue;
    }
    pool_->Share({child});
    pool_->Free({pages[i]});
    pages[i] = child;
    changed = true;
  }
  return changed;
}

int64_t PrefixCache::Evict(int64_t count) {
  count = std::clamp<int64_t>(count, 0, pool_->idle_pages());
  for (int64_t i = 0; i < count; ++i) Remove(pool_->oldest_idle());
  return count;
}

int32_t PrefixCache::Child(int32_t parent, absl::Span<const int32_t> tokens, int64_t index) const {
  const auto child = children_.find(Edge{parent, tokens.subspan(index * page_size_, page_size_)});
  return child == children_.end() ? kNone : child->second;
}

void PrefixCache::Add(int32_t parent, absl::Span<const int32_t> page_tokens, int32_t page) {
  const absl::Span<int32_t> own = TokensOf(page);
  std::copy(page_tokens.begin(), page_tokens.end(), own.begin());
  children_.emplace(Edge{parent, own}, page);
  nodes_[page] = {parent, 0, ++inserts_};
  if (parent != kNone) ++nodes_[parent].children;
  pool_->Cache(page);
}

void PrefixCache::Remove(int32_t page) {
  const int32_t parent = nodes_[page].parent;
  ABSL_RAW_CHECK(nodes_[page].children == 0,
                 "a sequence gave back a page before the pages behind it");
  children_.erase(Edge{parent, TokensOf(page)});
  nodes_[page] = {};
  if (parent != kNone) --nodes_[parent].children;
  pool_->Uncache(page);
}

absl::Span<int32_t> PrefixCache::TokensOf(int32_t page) {
  return absl::MakeSpan(tokens_).subspan(page * page_size_, page_size_);
}

}  // namespace skein::worker
