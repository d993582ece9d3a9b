// Quantised blocks for tests, made of no numbers: any bytes are blocks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/dtype.h"

namespace skein {

// Returns the dtypes that have blocks.
std::vector<DType> QuantizedDTypes();

// Returns `count` blocks, reproducible, whose scales and minima are between 2^-7 and 2^-4 times
// `scale`, in either sign.
std::vector<std::byte> RandomBlocks(uint32_t seed, DType dtype, int64_t count, float scale = 1);

}  // namespace skein
