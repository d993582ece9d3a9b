// Element types of tensors as stored in files and in memory, and their conversion to float.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <string_view>

#include "absl/status/statusor.h"

namespace skein {

// Every dtype is a sequence of blocks of BlockElements() elements in BlockBytes() bytes. Plain
// types have blocks of one element; quantised types (GGUF's) join with larger ones. Weights never
// have the last two: they are for ids and bytes that ranks exchange.
enum class DType : uint8_t { kF32, kF16, kBF16, kI32, kU8 };

std::string_view DTypeName(DType dtype);  // "F32", "F16", "BF16", "I32", "U8"

// InvalidArgument for a name that is no weight's dtype.
absl::StatusOr<DType> ParseDType(std::string_view name);

constexpr int64_t BlockElements(DType) { return 1; }
constexpr int64_t BlockBytes(DType dtype) {
  if (dtype == DType::kU8) return 1;
  return dtype == DType::kF32 || dtype == DType::kI32 ? 4 : 2;
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

// Converts `count` stored elements of a weight at `in` to float at `out`. No alignment is asked of
// `in`.
void ConvertToFloat(DType dtype, const void* in, int64_t count, float* out);
// Converts `count` floats at `in` to stored elements at `out`, rounding to nearest even.
void ConvertFromFloat(DType dtype, const float* in, int64_t count, void* out);

}  // namespace skein
