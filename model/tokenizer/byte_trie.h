// A map from texts to numbers that finds all texts with which another one begins.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"

namespace skein::model {

// Immutable once filled; any thread may use it.
class ByteTrie {
 public:
  // The later value of a text counts. `text` is not empty, `value` not negative.
  void Add(std::string_view text, int32_t value) {
    uint32_t node = 0;
    for (const char byte : text) {
      const auto [child, added] =
          children_.try_emplace(Key(node, byte), static_cast<uint32_t>(values_.size()));
      if (added) values_.push_back(kNone);
      node = child->second;
    }
    values_[node] = value;
  }

  bool empty() const { return children_.empty(); }

  // Calls `found(size, value)` for each prefix of `text` that was added, the shortest first.
  template <typename Found>
  void ForEachPrefix(std::string_view text, Found&& found) const {
    uint32_t node = 0;
    for (size_t i = 0; i < text.size(); ++i) {
      const auto child = children_.find(Key(node, text[i]));
      if (child == children_.end()) return;
      node = child->second;
      if (values_[node] != kNone) found(i + 1, values_[node]);
    }
  }

  // Bytes of the longest prefix; 0: there is none.
  size_t LongestPrefix(std::string_view text) const {
    size_t longest = 0;
    ForEachPrefix(text, [&](size_t size, int32_t /*value*/) { longest = size; });
    return longest;
  }

 private:
  static constexpr int32_t kNone = -1;

  static uint64_t Key(uint32_t node, char byte) {
    return static_cast<uint64_t>(node) << 8 | static_cast<unsigned char>(byte);
  }

  absl::flat_hash_map<uint64_t, uint32_t> children_;  // of node << 8 | byte
  std::vector<int32_t> values_ = {kNone};             // by node
};

}  // namespace skein::model
