// The prefixes of past and present sequences whose keys and values are still in the KV cache: a
// radix tree over pages of tokens (after Zheng et al., SGLang: RadixAttention, 2024). The leader
// owns it beside the pool; the other ranks see only page ids.
//
// Rules for those who use its pages, CHECKed where they would break the tree:
// - A sequence that uses a page uses all pages before it, and gives pages back from its end on
//   (one PagePool::Free of all of them does). So a page is idle no later than the page before it,
//   and the page that is idle longest is always a leaf.
// - A sequence is Inserted before a fork shares its pages: full pages have one owner until then.
// - Cached pages are not written.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/types/span.h"
#include "worker/kv/page_pool.h"

namespace skein::worker {

// The part of a sequence that is cached.
struct PrefixHit {
  int64_t pages = 0;    // full pages that hold its first tokens
  int64_t idle = 0;     // so many of these, the last ones, are used by no sequence
  int32_t last = -1;    // the id of the last of these pages
  uint64_t insert = 0;  // the number of the insertion that brought that page
};

// Not thread-safe. Memory for as many nodes as the pool has pages is taken at once.
class PrefixCache {
 public:
  using Hit = PrefixHit;

  // The pool outlives it; nobody else caches pages of the pool. page_size: tokens per page, > 0.
  PrefixCache(PagePool* pool, int64_t page_size);

  PrefixCache(const PrefixCache&) = delete;
  PrefixCache& operator=(const PrefixCache&) = delete;

  // The longest cached prefix of `tokens`, in full pages, of at most `limit` tokens. Does not count
  // as a use. `known`: an earlier answer for the same tokens; while its pages are there the search
  // goes on behind them. Costs a hash lookup per page found and one more, and a look at each idle
  // page.
  Hit Find(absl::Span<const int32_t> tokens, int64_t limit, const Hit& known = {}) const;
  // The pages that Find counts, with one user more each.
  std::vector<int32_t> Acquire(absl::Span<const int32_t> tokens, int64_t limit,
                               const Hit& known = {});

  // Keeps the full pages of a sequence that uses `pages`: pages[i] holds the keys and values of
  // tokens [i * page_size, (i + 1) * page_size), or will before any later step reads them; pages
  // beyond the last full one are ignored. Where the tree has a page for the same tokens after the
  // same prefix already, pages[i] becomes that one, the user moves over, and the sequence's own is
  // freed: the bits are the same. Returns whether `pages` changed. To be called whenever `tokens`
  // has grown: costs one or two hash lookups per page that became full since the last call.
  bool Insert(absl::Span<const int32_t> tokens, std::vector<int32_t>& pages);

  // Gives up to `count` idle pages back to the pool, least recently used first; a sequence's last
  // page goes before its first. Returns how many. Costs a hash lookup per page.
  int64_t Evict(int64_t count);

  // Grows whenever Find may answer otherwise.
  uint64_t version() const { return inserts_ + pool_->idle_version(); }

 private:
  static constexpr int32_t kNone = -1;  // no page; as a parent: the root

  struct Node {
    int32_t parent = kNone;
    int32_t children = 0;
    uint64_t insert = 0;  // 0: not in the tree
  };
  // The edge to a node. Equality compares all tokens, since hashes may collide.
  struct Edge {
    int32_t parent;
    absl::Span<const int32_t> tokens;  // [page_size]

    friend bool operator==(const Edge& a, const Edge& b) {
      return a.parent == b.parent && a.tokens == b.tokens;
    }
    template <typename H>
    friend H AbslHashValue(H hash, const Edge& edge) {
      return H::combine(std::move(hash), edge.parent, edge.tokens);
    }
  };

  // The page for tokens [index * page_size, (index + 1) * page_size) after `parent`, or kNone.
  int32_t Child(int32_t parent, absl::Span<const int32_t> tokens, int64_t index) const;
  void Add(int32_t parent, absl::Span<const int32_t> page_tokens, int32_t page);
  void Remove(int32_t page);
  absl::Span<int32_t> TokensOf(int32_t page);

  PagePool* const pool_;
  const int64_t page_size_;
  std::vector<Node> nodes_;                      // by page
  std::vector<int32_t> tokens_;                  // [pages, page_size]
  absl::flat_hash_map<Edge, int32_t> children_;  // of all nodes; the keys point into tokens_
  uint64_t inserts_ = 0;
};

}  // namespace skein::worker
