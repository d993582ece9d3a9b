#include "parallel/comm/tree_sum.h"

#include <algorithm>
#include <cstring>

#include "base/tree_sum.h"

namespace skein::comm {
namespace {

// Partial sums of one block stay in the first-level cache: 1 KiB a level, at most 6 levels for 64
// ranks.
constexpr int64_t kBlock = 256;

// out[count] = the tree over inputs[*][offset, offset + count).
void SumBlock(absl::Span<const float* const> inputs, int64_t offset, int64_t count, float* out) {
  if (inputs.size() == 1) {
    std::memcpy(out, inputs[0] + offset, count * sizeof(float));
    return;
  }
  if (inputs.size() == 2) {
    const float* a = inputs[0] + offset;
    const float* b = inputs[1] + offset;
    for (int64_t i = 0; i < count; ++i) out[i] = a[i] + b[i];
    return;
  }
  const int64_t split = TreeSplit(static_cast<int64_t>(inputs.size()));
  float right[kBlock];
  SumBlock(inputs.subspan(0, split), offset, count, out);
  SumBlock(inputs.subspan(split), offset, count, right);
  for (int64_t i = 0; i < count; ++i) out[i] += right[i];
}

}  // namespace

void TreeSum(absl::Span<const float* const> inputs, int64_t count, float* out) {
  float sum[kBlock];
  for (int64_t offset = 0; offset < count; offset += kBlock) {
    const int64_t block = std::min(kBlock, count - offset);
    SumBlock(inputs, offset, block, sum);
    std::memcpy(out + offset, sum, block * sizeof(float));
  }
}

}  // namespace skein::comm
