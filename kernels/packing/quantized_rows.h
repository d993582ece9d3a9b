// Rows of activations as integers, for products with quantised weights.
#pragma once

#include <cstddef>
#include <cstdint>

namespace skein::kernels {

// So many columns share a scale: a block of the shorter quantised types, whatever the weight's.
inline constexpr int64_t kScaledCols = 32;
// Sums are kept of as many as share a scale in the superblocks of some types.
inline constexpr int64_t kSummedCols = 16;
inline constexpr int kMostInteger = 127;
// Blocks of no larger magnitude are zeros: 127 / magnitude would overflow.
inline constexpr float kLeastMagnitude = 1e-30f;

// Rows in one piece of memory, each as scales, sums and integers, on cache lines of their own. A
// column is its integer, in [-127, 127], times its block's scale, which is the block's largest
// magnitude / 127. A block with a NaN or an infinity has the scale NaN and zeros. `cols` is a
// multiple of kScaledCols; `data` may be null.
struct QuantizedRows {
  std::byte* data = nullptr;
  int64_t cols = 0;

  static constexpr int64_t RowBytes(int64_t cols) {
    const int64_t bytes = cols / kScaledCols * 4 + cols / kSummedCols * 4 + cols;
    return (bytes + 63) / 64 * 64;
  }
  // [cols / kScaledCols]
  float* scales(int64_t row) const { return reinterpret_cast<float*>(data + row * RowBytes(cols)); }
  // Of integers, [cols / kSummedCols].
  int32_t* sums(int64_t row) const {
    return reinterpret_cast<int32_t*>(scales(row) + cols / kScaledCols);
  }
  // [cols]
  int8_t* integers(int64_t row) const {
    return reinterpret_cast<int8_t*>(sums(row) + cols / kSummedCols);
  }
};

}  // namespace skein::kernels
