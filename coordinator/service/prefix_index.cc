#include "coordinator/service/prefix_index.h"

#include <xxhash.h>

#include <algorithm>

namespace skein::coordinator {

std::vector<uint64_t> PrefixIndex::Hashes(const std::vector<int32_t>& prompt) const {
  std::vector<uint64_t> hashes;
  if (page_size_ <= 0) return hashes;
  uint64_t hash = 0;
  const auto page = static_cast<size_t>(page_size_);
  for (size_t begin = 0; begin + page <= prompt.size(); begin += page) {
    hash = XXH3_64bits_withSeed(prompt.data() + begin, page * sizeof(prompt[0]), hash);
    hashes.push_back(hash);
  }
  return hashes;
}

int64_t PrefixIndex::Match(const std::vector<int32_t>& prompt) const {
  if (pages_by_hash_.empty()) return 0;
  int64_t tokens = 0;
  for (const uint64_t hash : Hashes(prompt)) {
    if (!pages_by_hash_.contains(hash)) break;
    tokens += page_size_;
  }
  return std::min(tokens, static_cast<int64_t>(prompt.size()) - 1);
}

void PrefixIndex::Insert(const std::vector<int32_t>& prompt) {
  const std::vector<uint64_t> hashes = Hashes(prompt);
  // Backwards: a page is of no use without those before it, which so are the last to give way.
  for (auto hash = hashes.rbegin(); hash != hashes.rend(); ++hash) {
    const auto [entry, is_new] = pages_by_hash_.try_emplace(*hash);
    if (is_new) {
      entry->second = by_use_.insert(by_use_.begin(), *hash);
    } else {
      by_use_.splice(by_use_.begin(), by_use_, entry->second);
    }
  }
  while (static_cast<int64_t>(by_use_.size()) > pages_) {
    pages_by_hash_.erase(by_use_.back());
    by_use_.pop_back();
  }
}

}  // namespace skein::coordinator
