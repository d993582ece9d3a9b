// How much memory a user gives to keys and values.
#pragma once

#include <cstdint>
#include <string_view>

#include "absl/status/statusor.h"

namespace skein::plan {

// More than any rank has; 1,024 times it is within an int64.
inline constexpr int64_t kMaxRankBytes = int64_t{1} << 50;

// At most one is set. Neither: what max_sequences of a full context need, or as much of it as
// memory has room for.
struct KvMemory {
  // (0, 1]: of what weights, activations, swap and processes leave of a node's usable memory.
  double fraction = 0;
  int64_t bytes_per_rank = 0;

  friend bool operator==(const KvMemory&, const KvMemory&) = default;
};

// A fraction ("0.5", "1") or bytes per rank ("512MiB", "1.5GiB"; B, KiB, MiB, GiB, TiB); "" asks
// for nothing. InvalidArgument quotes the text, what is wrong and examples.
absl::StatusOr<KvMemory> ParseKvMemory(std::string_view text);

// Bytes per rank to swap to, as above, without fractions; "" and "0" are none.
absl::StatusOr<int64_t> ParseSwapMemory(std::string_view text);

}  // namespace skein::plan
