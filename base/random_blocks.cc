#include "base/random_blocks.h"

#include <cstring>
#include <random>

namespace skein {

std::vector<DType> QuantizedDTypes() {
  std::vector<DType> dtypes;
  for (int i = 0; i <= static_cast<int>(DType::kIQ4_XS); ++i) {
    if (IsQuantized(static_cast<DType>(i))) dtypes.push_back(static_cast<DType>(i));
  }
  return dtypes;
}

std::vector<std::byte> RandomBlocks(uint32_t seed, DType dtype, int64_t count, float scale) {
  std::minstd_rand random(seed + 1);
  const int64_t bytes = BlockBytes(dtype);
  std::vector<std::byte> blocks(count * bytes);
  for (std::byte& byte : blocks) byte = static_cast<std::byte>(random() >> 11);
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
      const float sign = (random() >> 11) % 2 == 0 ? 1.0f : -1.0f;
      const float size = 0x1p-7f + static_cast<float>((random() >> 11) % 1024) * 0x1p-14f;
      const uint16_t bits = FloatToF16(sign * size * scale);
      std::memcpy(&blocks[block * bytes + at], &bits, sizeof(bits));
    }
  }
  return blocks;
}

}  // namespace skein
