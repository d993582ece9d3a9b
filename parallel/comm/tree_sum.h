// Adds what ranks hold, in the order of base/tree_sum.h.
#pragma once

#include <cstdint>

#include "absl/types/span.h"

namespace skein::comm {

// out[count] = the sum of inputs[i][count] over all i, joined as a binary tree. `out` may be one of
// the inputs, or overlap none. inputs.size() >= 1. Reads each input once.
void TreeSum(absl::Span<const float* const> inputs, int64_t count, float* out);

}  // namespace skein::comm
