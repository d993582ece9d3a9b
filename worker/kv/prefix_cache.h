// The prefixes of past and present sequences whose keys and values are still in the KV cache: a
// radix tree over pages of tokens (after Zheng et al., SGLang: RadixAttention, 2024). The leader
// owns it beside the pool; the other ranks see only page ids.
//
// Where every layer has a sliding window, a row needs the pages of its window only. A node whose
// page was taken away then stays for those behind it, without one, as long as there are any.
//
// Rules for those who use its pages, CHECKed where they would break the tree:
// - Without a window a sequence that uses a page uses all pages before it, and gives pages back
//   from its end on (one PagePool::Free of all of them does). So a page is idle no later than the
//   page before it, and the page that is idle longest is always a leaf.
// - A sequence is Inserted before a fork shares its pages: full pages have one owner until then.
// - Cached pages are not written.
#pragma once

#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/types/span.h"
#include "worker/kv/page_pool.h"

namespace skein::worker {

// A node of the tree, by the full pages of tokens that lead to it.
struct PrefixPlace {
  // Of a sequence that keeps no more pages: what is before them has no nodes.
  static constexpr int64_t kCutOff = std::numeric_limits<int64_t>::max();

  int64_t pages = 0;
  int32_t node = -1;
  uint64_t insert = 0;  // the number of the insertion that brought the node
};

// The part of a sequence that is cached.
struct PrefixHit : PrefixPlace {
  int64_t first = 0;  // no row behind the hit sees the pages before this one
  int64_t idle = 0;   // so many of the pages from `first` on are used by no sequence
};

// Not thread-safe. There are as many nodes as the pool has pages; with a window at most
// nodes_of_page times as many.
class PrefixCache {
 public:
  using Hit = PrefixHit;

  // The pool outlives it; nobody else caches pages of the pool. page_size: tokens per page, > 0.
  // window: how many positions a row attends to at most, its own included; 0: all before it.
  // nodes_of_page: contexts of so many windows may leave all their nodes behind.
  PrefixCache(PagePool* pool, int64_t page_size, int64_t window = 0, int64_t nodes_of_page = 8);

  PrefixCache(const PrefixCache&) = delete;
  PrefixCache& operator=(const PrefixCache&) = delete;

  // The first page that rows from `position` on attend to.
  int64_t FirstSeen(int64_t position) const;

  // The longest prefix of `tokens`, in full pages, of at most `limit` tokens, behind which a row
  // finds the pages that it sees. Does not count as a use. `known`: an earlier answer for the same
  // tokens; while its pages are there the search goes on behind them. Costs a hash lookup per node
  // that the tokens lead to and one more, and a look at each idle page (with a window: at each page
  // of it).
  Hit Find(absl::Span<const int32_t> tokens, int64_t limit, const Hit& known = {}) const;
  // The pages of `hit`, which is Find's answer now, with one user more each; those before
  // hit.first are 0.
  std::vector<int32_t> Acquire(const Hit& hit);

  // Keeps the full pages of a sequence that uses `pages`, but for the first `gone` ones, which it
  // has given back: pages[i] holds the keys and values of tokens [i * page_size,
  // (i + 1) * page_size), or will before any later step reads them; pages beyond the last full one
  // are ignored. Where the tree has a page for the same tokens after the same prefix already,
  // pages[i] becomes that one, the user moves over, and the sequence's own is freed: the bits are
  // the same. Returns whether `pages` changed. To be called whenever `tokens` has grown. `kept` is
  // where the last call for the sequence (or its hit) led to, and becomes where this one does:
  // costs one or two hash lookups per page from there on. With a window it may come to be cut off:
  // there is no room for nodes, or a fork shares pages that never had one.
  bool Insert(absl::Span<const int32_t> tokens, int64_t gone, std::vector<int32_t>& pages,
              PrefixPlace& kept);
  // The place at most `pages` pages deep on the way to `place`; the root, where that is gone.
  PrefixPlace Back(PrefixPlace place, int64_t pages) const;

  // Gives up to `count` idle pages back to the pool, least recently used first; a sequence's last
  // page goes before its first. Returns how many. Costs a hash lookup per page.
  int64_t Evict(int64_t count);

  // Grows whenever Find may answer otherwise.
  uint64_t version() const { return inserts_ + pool_->idle_version(); }
  int64_t nodes() const { return static_cast<int64_t>(children_.size()); }

 private:
  static constexpr int32_t kNone = -1;  // no page, no node; as a parent: the root

  struct Node {
    int32_t parent = kNone;
    int32_t page = kNone;
    int32_t children = 0;
    uint64_t insert = 0;          // 0: not in the tree
    std::vector<int32_t> tokens;  // [page_size]
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

  bool Stands(const PrefixPlace& place) const {
    return place.node != kNone && nodes_[place.node].insert == place.insert;
  }
  PrefixPlace PlaceOf(int32_t node, int64_t pages) const {
    return {pages, node, node == kNone ? 0 : nodes_[node].insert};
  }
  // Whether all pages that a row behind `hit` sees are there, of which it counts the idle ones.
  bool CountIdle(Hit& hit) const;
  // The node for tokens [index * page_size, (index + 1) * page_size) after `parent`, or kNone.
  int32_t Child(int32_t parent, absl::Span<const int32_t> tokens, int64_t index) const;
  int32_t Add(int32_t parent, absl::Span<const int32_t> page_tokens);
  void Fill(int32_t node, int32_t page);
  // Takes nodes away that have neither a page nor children, from `node` towards the root.
  void Prune(int32_t node);

  PagePool* const pool_;
  const int64_t page_size_;
  const int64_t window_;
  const int64_t max_nodes_;
  std::vector<Node> nodes_;
  std::vector<int32_t> free_nodes_;
  std::vector<int32_t> node_of_page_;            // by page; kNone: it is not cached
  absl::flat_hash_map<Edge, int32_t> children_;  // of all nodes; the keys point into their tokens
  uint64_t inserts_ = 0;
};

}  // namespace skein::worker
