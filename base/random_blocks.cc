#include "base/random_blocks.h"

#include <bit>
#include <cstring>
#include <random>

namespace skein {

std::vector<DType> QuantizedDTypes() {
  std::vector<DType> dtypes;
  for (int i = 0; i <= static_cast<int>(DType::kInt4); ++i) {
    if (IsQuantized(static_cast<DType>(i))) dtypes.push_back(static_cast<DType>(i));
  }
  return dtypes;
}

namespace {

// A number of either sign whose magnitude is in [2^-7, 2^-4), with 12 significant bits.
float RandomScale(std::minstd_rand& random, float scale) {
  const float sign = (random() >> 11) % 2 == 0 ? 1.0f : -1.0f;
  return sign * (0x1p-7f + static_cast<float>((random() >> 11) % 1024) * 0x1p-14f) * scale;
}

// The first word of each block of a type that has an F32 there.
void SetScales(std::minstd_rand& random, DType dtype, float scale, std::vector<std::byte>& blocks) {
  const auto bytes = static_cast<size_t>(BlockBytes(dtype));
  for (size_t at = 0; at < blocks.size(); at += bytes) {
    auto word = std::bit_cast<uint32_t>(F16ToFloat(FloatToF16(RandomScale(random, scale))));
    if (dtype == DType::kInt4) word |= static_cast<uint32_t>((random() >> 11) % 17);
    std::memcpy(&blocks[at], &word, sizeof(word));
    for (size_t i = sizeof(word); dtype == DType::kFp8 && i < bytes; ++i) {
      if (IsE4M3Nan(std::to_integer<uint8_t>(blocks[at + i]))) blocks[at + i] = std::byte{0};
    }
  }
}

}  // namespace

std::vector<std::byte> RandomBlocks(uint32_t seed, DType dtype, int64_t count, float scale) {
  std::minstd_rand random(seed + 1);
  const int64_t bytes = BlockBytes(dtype);
  std::vector<std::byte> blocks(count * bytes);
  for (std::byte& byte : blocks) byte = static_cast<std::byte>(random() >> 11);
  if (dtype == DType::kFp8 || dtype == DType::kInt8 || dtype == DType::kInt4) {
    SetScales(random, dtype, dtype == DType::kFp8 ? scale / 4 : scale, blocks);
    return blocks;
  }
  // The places of F16 numbers in a block.
  std::vector<int64_t> halves = {0};
  if (dtype == DType::kQ2_K) halves = {80, 82};
  if (dtype == DType::kQ3_K || dtype == DType::kQ6_K) halves = {bytes - 2};
  if (dtype == DType::kQ4_1 || dtype == DType::kQ5_1 || dtype == DType::kQ4_K ||
      dtype == DType::kQ5_K) {
    halves = {0, 2};
  }
  for (int64_t block = 0; block < count; ++block) {
    for (const int64_t at : halves) {
      const uint16_t bits = FloatToF16(RandomScale(random, scale));
      std::memcpy(&blocks[block * bytes + at], &bits, sizeof(bits));
    }
  }
  return blocks;
}

}  // namespace skein
