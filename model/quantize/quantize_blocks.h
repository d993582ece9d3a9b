// Makes blocks of quantised types (base/quantized_blocks.h) of numbers.
#pragma once

#include <cstdint>

#include "base/dtype.h"

namespace skein::model {

// Writes `blocks` blocks of `dtype`, a quantised type of GGUF's, whose values are near those of
// `in`, finite numbers that F16 does not overflow on.
//
// Scales and minima are searched for: a block's, and in superblocks each subblock's, are those of a
// grid around the extremes that give the least sum of squared errors once they are refitted to the
// roundings that they lead to, by least squares. Superblocks then choose the small integers of
// their subblocks' scales, and refit the number that these multiply, likewise.
//
// An element's squared error weighs sqrt(its square + the block's mean square), by which files of
// few bits a weight foretell better than by squares alone (docs/quantisation.md), times its
// `importance`, [blocks * BlockElements], positive; null: all have the same.
//
// Any thread may call; takes no memory. Costs 30 to 300 ns a weight on a core of 2.5 GHz.
void QuantizeBlocks(DType dtype, const float* in, const float* importance, int64_t blocks,
                    void* out);

}  // namespace skein::model
