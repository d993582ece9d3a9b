// Element types of tensors as stored in files and in memory, and their conversion to float.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <string_view>

#include "absl/status/statusor.h"

namespace skein {

// Every dtype is a sequence of blocks of BlockElements() elements in BlockBytes() bytes. Plain
// types have blocks of one element, the quantised ones of ggml 32 or 256 (base/quantized_blocks.h
// tells their bytes). Weights are never kI32 or kU8: these are for ids and bytes that ranks
// exchange.
enum class DType : uint8_t {
  kF32,
  kF16,
  kBF16,
  kI32,
  kU8,
  kQ4_0,
  kQ4_1,
  kQ5_0,
  kQ5_1,
  kQ8_0,
  kQ2_K,
  kQ3_K,
  kQ4_K,
  kQ5_K,
  kQ6_K,
  kIQ4_NL,
  kIQ4_XS,
};

std::string_view DTypeName(DType dtype);  // "F32", "BF16", "Q4_K"

// Plain weights: F32, F16, BF16. InvalidArgument for another name.
absl::StatusOr<DType> ParseDType(std::string_view name);

constexpr int64_t BlockElements(DType dtype) {
  switch (dtype) {
    case DType::kQ4_0:
    case DType::kQ4_1:
    case DType::kQ5_0:
    case DType::kQ5_1:
    case DType::kQ8_0:
    case DType::kIQ4_NL:
      return 32;
    case DType::kQ2_K:
    case DType::kQ3_K:
    case DType::kQ4_K:
    case DType::kQ5_K:
    case DType::kQ6_K:
    case DType::kIQ4_XS:
      return 256;
    default:
      return 1;
  }
}

constexpr int64_t BlockBytes(DType dtype) {
  switch (dtype) {
    case DType::kU8:
      return 1;
    case DType::kF16:
    case DType::kBF16:
      return 2;
    case DType::kF32:
    case DType::kI32:
      return 4;
    case DType::kQ4_0:
    case DType::kIQ4_NL:
      return 18;
    case DType::kQ4_1:
      return 20;
    case DType::kQ5_0:
      return 22;
    case DType::kQ5_1:
      return 24;
    case DType::kQ8_0:
      return 34;
    case DType::kQ2_K:
      return 84;
    case DType::kQ3_K:
      return 110;
    case DType::kIQ4_XS:
      return 136;
    case DType::kQ4_K:
      return 144;
    case DType::kQ5_K:
      return 176;
    case DType::kQ6_K:
      return 210;
  }
  return 0;
}

constexpr bool IsQuantized(DType dtype) { return BlockElements(dtype) > 1; }

// Bytes of `elements` consecutive elements; `elements` is a multiple of BlockElements(dtype).
constexpr int64_t DTypeBytes(DType dtype, int64_t elements) {
  return elements / BlockElements(dtype) * BlockBytes(dtype);
}

inline float Bf16ToFloat(uint16_t bits) {
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}
// Rounds to nearest even; NaN stays NaN.
uint16_t FloatToBf16(float value);
float F16ToFloat(uint16_t bits);
// Rounds to nearest even; overflow gives infinity; NaN stays NaN.
uint16_t FloatToF16(float value);

// Converts `count` stored elements of a weight, whole blocks, at `in` to float at `out`. No
// alignment is asked of `in`.
void ConvertToFloat(DType dtype, const void* in, int64_t count, float* out);
// Converts `count` floats at `in` to stored elements of a plain dtype at `out`, rounding to nearest
// even.
void ConvertFromFloat(DType dtype, const float* in, int64_t count, void* out);

}  // namespace skein
