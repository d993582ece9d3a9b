// Guesses what a replica's prefix cache holds, from the prompts that were sent there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <unordered_map>
#include <vector>

namespace skein::coordinator {

// A set of hashes. Each stands for all tokens of a prompt up to the end of one page. There are at
// most as many as the replica has pages; the one that is unused longest gives way. The guess may be
// wrong: two prefixes in 2^64 are equal by chance, and the replica evicts as it must. Then a
// request computes what it could have found elsewhere; no answer changes.
//
// Not thread-safe. Both calls cost O(tokens).
class PrefixIndex {
 public:
  PrefixIndex(int64_t page_size, int64_t pages) : page_size_(page_size), pages_(pages) {}

  // The length in tokens of the longest beginning of `prompt` that is there: whole pages, and less
  // than the whole prompt, since its last token is computed in any case.
  int64_t Match(const std::vector<int32_t>& prompt) const;
  void Insert(const std::vector<int32_t>& prompt);

  size_t size() const { return pages_by_hash_.size(); }

 private:
  std::vector<uint64_t> Hashes(const std::vector<int32_t>& prompt) const;

  int64_t page_size_;
  int64_t pages_;
  std::list<uint64_t> by_use_;  // the one used last first
  std::unordered_map<uint64_t, std::list<uint64_t>::iterator> pages_by_hash_;
};

}  // namespace skein::coordinator
