// Which kernel multiplies.
#pragma once

#include <cstdint>

#include "kernels/packing/layout.h"

namespace skein::kernels::cuda {

enum class ProductKind : uint8_t { kFewRows, kStreamK, kWideTile, kBlas, kBatchInvariant };

// For `rows` rows of input on the current device: the kernel that was the fastest in steps of 8B
// and 1B models on an H200. With fewer tiles than 32, too many blocks of stream-K share one. Wide
// tiles win where they keep the device busy, and with many rows, whose parts of tiles cost stream-K
// too much, also where they do less so.
ProductKind KindOfProduct(int64_t rows, const WeightSpec& weight, bool deterministic,
                          int32_t multiprocessors);

}  // namespace skein::kernels::cuda
