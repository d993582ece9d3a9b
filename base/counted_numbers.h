// Numbers that are functions of a seed and of their index alone, in integers, so that any part of
// them has the same bits wherever it is made, on a host or on a GPU: random weights.
#pragma once

#include <cstdint>

namespace skein {

// Output number `index` of SplitMix64, whose state is a counter.
constexpr uint64_t SplitMix64(uint64_t seed, uint64_t index) {
  uint64_t z = seed + (index + 1) * 0x9e3779b97f4a7c15;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

// The number that a byte stands for, exact in F32, F16 and BF16. Number i of a seed is that of byte
// i % 8, from the least significant one, of output i / 8.
constexpr float NumberOfByte(uint8_t byte) {
  return static_cast<float>(2 * static_cast<int>(byte) - 255) / 8192.0f;
}

// Element (r, c) is number first + r * stride + c of the seed.
struct CountedRows {
  uint64_t seed = 0;
  int64_t first = 0;
  int64_t stride = 0;
};

}  // namespace skein
