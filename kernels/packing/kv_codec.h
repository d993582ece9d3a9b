// Turns keys and values into the 8-bit integers of a KV cache, as every back end writes them: host
// and device.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <limits>

namespace skein::kernels {

// The bits of |x|. Magnitudes order as they do, with infinity and then NaN last.
constexpr uint32_t MagnitudeBits(float x) { return std::bit_cast<uint32_t>(x) & 0x7FFFFFFFu; }

// Returns what one step of a row's integers is worth: max|x| / 127, of the largest MagnitudeBits.
// It is 0 for a row of zeros, and NaN where a number is not finite, so that the whole row then
// reads as NaN.
constexpr float Int8Scale(uint32_t largest) {
  if (largest >= 0x7F800000u) return std::numeric_limits<float>::quiet_NaN();
  return std::bit_cast<float>(largest) / 127.0f;
}
// Of row [n].
inline float Int8Scale(const float* row, int64_t n) {
  uint32_t largest = 0;
  for (int64_t i = 0; i < n; ++i) largest = std::max(largest, MagnitudeBits(row[i]));
  return Int8Scale(largest);
}

// Rounds x / scale to the nearest integer, ties to even. |x| <= 127 * scale, its rounding aside.
constexpr int8_t ToInt8(float x, float scale) {
  if (!(scale > 0)) return 0;
  // Only a scale below the normal numbers is rounded so much that the limits are reached.
  const float steps = std::clamp(x / scale, -127.0f, 127.0f);
  // At this size a float has no bits for fractions.
  constexpr float kNoFraction = 0x1.8p23f;
  return static_cast<int8_t>((steps + kNoFraction) - kNoFraction);
}

}  // namespace skein::kernels
