// The one order in which Skein adds what ranks hold, so that layouts agree in every bit.
#pragma once

#include <cstdint>

#include "absl/types/span.h"

namespace skein::comm {

// out[count] = the sum of inputs[i][count] over all i, joined as a binary tree: inputs are split
// at the largest power of two below their number, recursively, ((0+1)+(2+3))+((4+5)+(6+7)).
// `out` may be one of the inputs, or overlap none. inputs.size() >= 1. Reads each input once.
void TreeSum(absl::Span<const float* const> inputs, int64_t count, float* out);

}  // namespace skein::comm
