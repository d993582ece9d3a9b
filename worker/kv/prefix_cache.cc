#include "worker/kv/prefix_cache.h"

#include <algorithm>

#include "absl/base/internal/raw_logging.h"

namespace skein::worker {

PrefixCache::PrefixCache(PagePool* pool, int64_t page_size, int64_t window, int64_t nodes_of_page)
    : pool_(pool),
      page_size_(page_size),
      window_(window),
      max_nodes_(pool->total_pages() * (window > 0 ? nodes_of_page : 1)),
      node_of_page_(pool->total_pages(), kNone) {
  nodes_.reserve(pool->total_pages());
  children_.reserve(pool->total_pages());
}

int64_t PrefixCache::FirstSeen(int64_t position) const {
  return window_ > 0 ? std::max<int64_t>(position - window_ + 1, 0) / page_size_ : 0;
}

bool PrefixCache::CountIdle(Hit& hit) const {
  hit.first = FirstSeen(hit.pages * page_size_);
  hit.idle = 0;
  int32_t node = hit.node;
  for (int64_t i = hit.pages; i > hit.first; --i) {
    const int32_t page = nodes_[node].page;
    if (page == kNone) return false;
    const bool idle = pool_->users(page) == 0;
    if (!idle && window_ == 0) break;  // all pages before it are used, too
    hit.idle += idle ? 1 : 0;
    node = nodes_[node].parent;
  }
  return true;
}

PrefixCache::Hit PrefixCache::Find(absl::Span<const int32_t> tokens, int64_t limit,
                                   const Hit& known) const {
  const int64_t full = std::min<int64_t>(tokens.size(), limit) / page_size_;
  Hit best;
  if (known.pages > 0 && known.pages <= full && Stands(known)) {
    best = known;
    if (window_ > 0 && !CountIdle(best)) best = {};
  }
  int32_t node = best.node;
  int64_t run = best.pages - best.first;  // of nodes with pages, up to this one
  for (int64_t pages = best.pages; pages < full;) {
    node = Child(node, tokens, pages);
    if (node == kNone) break;
    ++pages;
    run = nodes_[node].page == kNone ? 0 : run + 1;
    if (run >= pages - FirstSeen(pages * page_size_)) {
      best = {PlaceOf(node, pages)};
    }
  }
  CountIdle(best);
  return best;
}

std::vector<int32_t> PrefixCache::Acquire(const Hit& hit) {
  std::vector<int32_t> pages(hit.pages);
  int32_t node = hit.node;
  for (int64_t i = hit.pages; i > hit.first; --i) {
    pages[i - 1] = nodes_[node].page;
    node = nodes_[node].parent;
  }
  pool_->Share(absl::MakeConstSpan(pages).subspan(hit.first));
  return pages;
}

bool PrefixCache::Insert(absl::Span<const int32_t> tokens, int64_t gone,
                         std::vector<int32_t>& pages, PrefixPlace& kept) {
  const int64_t full = static_cast<int64_t>(tokens.size()) / page_size_;
  ABSL_RAW_CHECK(full <= static_cast<int64_t>(pages.size()), "a sequence has tokens without pages");
  // None of the full pages is there, or none before them.
  if (full <= gone || kept.pages == PrefixPlace::kCutOff) return false;
  bool changed = false;
  if (!Stands(kept)) kept = {};
  while (kept.pages < full) {
    const int64_t i = kept.pages;
    int32_t node = Child(kept.node, tokens, i);
    if (node == kNone) {
      if (nodes() + full - i > max_nodes_) {
        kept = {.pages = PrefixPlace::kCutOff};
        return changed;
      }
      node = Add(kept.node, tokens.subspan(i * page_size_, page_size_));
    }
    const int32_t page = nodes_[node].page;
    if (i < gone || page == pages[i]) {
      // It has its place.
    } else if (window_ > 0 && pool_->users(pages[i]) > 1) {
      // A fork shares it that was made when there was no room for its node.
      kept = {.pages = PrefixPlace::kCutOff};
      Prune(node);
      return changed;
    } else if (page == kNone) {
      Fill(node, pages[i]);
    } else {
      ABSL_RAW_CHECK(pool_->users(pages[i]) == 1, "a sequence was forked before it was inserted");
      pool_->Share({page});
      pool_->Free({pages[i]});
      pages[i] = page;
      changed = true;
    }
    kept = PlaceOf(node, i + 1);
  }
  return changed;
}

PrefixPlace PrefixCache::Back(PrefixPlace place, int64_t pages) const {
  if (!Stands(place)) return {};
  while (place.pages > pages) place = PlaceOf(nodes_[place.node].parent, place.pages - 1);
  return place;
}

int64_t PrefixCache::Evict(int64_t count) {
  count = std::clamp<int64_t>(count, 0, pool_->idle_pages());
  for (int64_t i = 0; i < count; ++i) {
    const int32_t page = pool_->oldest_idle();
    const int32_t node = std::exchange(node_of_page_[page], kNone);
    ABSL_RAW_CHECK(window_ > 0 || nodes_[node].children == 0,
                   "a sequence gave back a page before the pages behind it");
    pool_->Uncache(page);
    nodes_[node].page = kNone;
    Prune(node);
  }
  return count;
}

int32_t PrefixCache::Child(int32_t parent, absl::Span<const int32_t> tokens, int64_t index) const {
  const auto child = children_.find(Edge{parent, tokens.subspan(index * page_size_, page_size_)});
  return child == children_.end() ? kNone : child->second;
}

int32_t PrefixCache::Add(int32_t parent, absl::Span<const int32_t> page_tokens) {
  if (free_nodes_.empty()) {
    free_nodes_.push_back(static_cast<int32_t>(nodes_.size()));
    nodes_.emplace_back();
  }
  const int32_t id = free_nodes_.back();
  free_nodes_.pop_back();
  Node& node = nodes_[id];
  node.parent = parent;
  node.insert = ++inserts_;
  node.tokens.assign(page_tokens.begin(), page_tokens.end());
  children_.emplace(Edge{parent, node.tokens}, id);
  if (parent != kNone) ++nodes_[parent].children;
  return id;
}

void PrefixCache::Fill(int32_t node, int32_t page) {
  ABSL_RAW_CHECK(pool_->users(page) == 1, "a sequence was forked before it was inserted");
  pool_->Cache(page);
  nodes_[node].page = page;
  node_of_page_[page] = node;
  ++inserts_;
}

void PrefixCache::Prune(int32_t node) {
  while (node != kNone && nodes_[node].page == kNone && nodes_[node].children == 0) {
    Node& leaf = nodes_[node];
    children_.erase(Edge{leaf.parent, leaf.tokens});
    leaf.insert = 0;
    free_nodes_.push_back(node);
    node = std::exchange(leaf.parent, kNone);
    if (node != kNone) --nodes_[node].children;
  }
}

}  // namespace skein::worker
