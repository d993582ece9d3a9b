// The memory that a user gives to keys and values, as text.
#pragma once

#include <cstdint>
#include <string_view>

#include "absl/status/statusor.h"

namespace skein::plan {

// More than any rank has; 1,024 times it is within an int64.
inline constexpr int64_t kMaxRankBytes = int64_t{1} << 50;

// At most one is set. If neither is, the cache gets the memory that max_num_seqs sequences of a
// full context need, or as much of that as there is room for.
struct KvMemory {
  // In (0, 1]: a fraction of what weights, activations, swap and processes leave of a node's usable
  // memory.
  double fraction = 0;
  int64_t bytes_per_rank = 0;

  friend bool operator==(const KvMemory&, const KvMemory&) = default;
};

// Parses a fraction ("0.5", "1") or bytes per rank ("512MiB", "1.5GiB"; B, KiB, MiB, GiB, TiB); ""
// sets neither. InvalidArgument quotes the text and says what is wrong, with examples.
absl::StatusOr<KvMemory> ParseKvMemory(std::string_view text);

// Parses the bytes per rank to swap to, written as above but never as a fraction; "" and "0" give
// 0.
absl::StatusOr<int64_t> ParseSwapMemory(std::string_view text);

}  // namespace skein::plan
