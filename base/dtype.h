// Element types of tensors as stored in files and in memory, and their conversion to float.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <string_view>

#include "absl/status/statusor.h"

namespace skein {

// Every dtype is a sequence of blocks of BlockElements() elements in BlockBytes() bytes. Plain
// types have blocks of one element, the quantised ones 32 or 256 (base/quantized_blocks.h tells
// their bytes).
enum class DType : uint8_t {
  kF32,
  kF16,
  kBF16,
  // Weights are never of these: they are ids and bytes that ranks exchange, and what quantised
  // checkpoints are stored in.
  kI32,
  kU8,
  kI8,
  kI64,
  kF8E4M3,
  // ggml's
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
  // Of other checkpoints, as they are kept in memory
  kFp8,
  kInt8,
  kInt4,
};

std::string_view DTypeName(DType dtype);  // "F32", "BF16", "Q4_K"

// Plain weights: F32, F16, BF16. InvalidArgument for another name.
absl::StatusOr<DType> ParseDType(std::string_view name);
// Quantised weights, too.
absl::StatusOr<DType> ParseWeightDType(std::string_view name);

constexpr int64_t BlockElements(DType dtype) {
  switch (dtype) {
    case DType::kQ4_0:
    case DType::kQ4_1:
    case DType::kQ5_0:
    case DType::kQ5_1:
    case DType::kQ8_0:
    case DType::kIQ4_NL:
    case DType::kFp8:
    case DType::kInt8:
    case DType::kInt4:
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
    case DType::kI8:
    case DType::kF8E4M3:
      return 1;
    case DType::kF16:
    case DType::kBF16:
      return 2;
    case DType::kF32:
    case DType::kI32:
      return 4;
    case DType::kI64:
      return 8;
    case DType::kQ4_0:
    case DType::kIQ4_NL:
      return 18;
    case DType::kQ4_1:
    case DType::kInt4:
      return 20;
    case DType::kQ5_0:
      return 22;
    case DType::kQ5_1:
      return 24;
    case DType::kQ8_0:
      return 34;
    case DType::kFp8:
    case DType::kInt8:
      return 36;
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
// Whether matrices of this type exist: plain floats, or blocks.
constexpr bool IsWeight(DType dtype) {
  return IsQuantized(dtype) || dtype == DType::kF32 || dtype == DType::kF16 ||
         dtype == DType::kBF16;
}

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
// A sign, four bits of exponent, three of mantissa; no infinities.
float E4M3ToFloat(uint8_t bits);
constexpr bool IsE4M3Nan(uint8_t bits) { return (bits & 0x7f) == 0x7f; }

// Converts `count` stored elements of a weight, whole blocks, at `in` to float at `out`. No
// alignment is asked of `in`.
void ConvertToFloat(DType dtype, const void* in, int64_t count, float* out);
// Converts `count` floats at `in` to stored elements of a plain dtype at `out`, rounding to nearest
// even.
void ConvertFromFloat(DType dtype, const float* in, int64_t count, void* out);

}  // namespace skein
