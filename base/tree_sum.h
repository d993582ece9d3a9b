// The one order in which Skein adds what blocks, shards and ranks hold, so that layouts agree in
// every bit: parts are split at the largest power of two below their number, recursively,
// ((0+1)+(2+3))+((4+5)+(6+7)). Pure; costs its additions.
#pragma once

#include <bit>
#include <cstdint>

namespace skein {

// How many of `count` > 1 parts stand left of the last addition.
constexpr int64_t TreeSplit(int64_t count) {
  return static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(count - 1)));
}

// The sum of part(i) for i in [first, first + count), count >= 1; each is asked for once.
template <typename Part>
constexpr auto TreeSum(int64_t first, int64_t count, const Part& part) {
  if (count == 1) return part(first);
  const int64_t left = TreeSplit(count);
  return TreeSum(first, left, part) + TreeSum(first + left, count - left, part);
}

}  // namespace skein
