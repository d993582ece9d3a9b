#include "base/dtype.h"

#include <limits>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/quantized_blocks.h"

namespace skein {

std::string_view DTypeName(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return "F32";
    case DType::kF16:
      return "F16";
    case DType::kBF16:
      return "BF16";
    case DType::kI32:
      return "I32";
    case DType::kU8:
      return "U8";
    case DType::kI8:
      return "I8";
    case DType::kI64:
      return "I64";
    case DType::kF8E4M3:
      return "F8_E4M3";
    case DType::kQ4_0:
      return "Q4_0";
    case DType::kQ4_1:
      return "Q4_1";
    case DType::kQ5_0:
      return "Q5_0";
    case DType::kQ5_1:
      return "Q5_1";
    case DType::kQ8_0:
      return "Q8_0";
    case DType::kQ2_K:
      return "Q2_K";
    case DType::kQ3_K:
      return "Q3_K";
    case DType::kQ4_K:
      return "Q4_K";
    case DType::kQ5_K:
      return "Q5_K";
    case DType::kQ6_K:
      return "Q6_K";
    case DType::kIQ4_NL:
      return "IQ4_NL";
    case DType::kIQ4_XS:
      return "IQ4_XS";
    case DType::kFp8:
      return "FP8";
    case DType::kInt8:
      return "INT8";
    case DType::kInt4:
      return "INT4";
  }
  return "?";
}

absl::StatusOr<DType> ParseDType(std::string_view name) {
  for (DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    if (name == DTypeName(dtype)) return dtype;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("unknown element type '", std::string(name), "' (known: F32, F16, BF16)"));
}

absl::StatusOr<DType> ParseWeightDType(std::string_view name) {
  for (auto dtype = DType::kQ4_0; dtype <= DType::kInt4;
       dtype = static_cast<DType>(static_cast<int>(dtype) + 1)) {
    if (name == DTypeName(dtype)) return dtype;
  }
  return ParseDType(name);
}

uint16_t FloatToBf16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>((bits >> 16) | 0x40u);
  return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

float F16ToFloat(uint16_t bits) {
  _Float16 half;
  static_assert(sizeof(half) == sizeof(bits));
  std::memcpy(&half, &bits, sizeof(half));
  return static_cast<float>(half);
}

uint16_t FloatToF16(float value) {
  const _Float16 half = static_cast<_Float16>(value);
  uint16_t bits;
  std::memcpy(&bits, &half, sizeof(bits));
  return bits;
}

float E4M3ToFloat(uint8_t bits) {
  if (IsE4M3Nan(bits)) return std::numeric_limits<float>::quiet_NaN();
  // F16 has four more bits of mantissa at the end, and an exponent whose zero is 8 higher.
  const auto half = static_cast<uint16_t>((bits & 0x80) << 8 | (bits & 0x7f) << 7);
  return F16ToFloat(half) * 256.0f;
}

void ConvertToFloat(DType dtype, const void* in, int64_t count, float* out) {
  if (count == 0) return;  // there may be no memory at all
  if (IsQuantized(dtype)) return DequantizeBlocks(dtype, in, count / BlockElements(dtype), out);
  if (dtype == DType::kF32) {
    std::memcpy(out, in, static_cast<size_t>(count) * sizeof(float));
    return;
  }
  const char* bytes = static_cast<const char*>(in);
  for (int64_t i = 0; i < count; ++i) {
    uint16_t bits;
    std::memcpy(&bits, bytes + 2 * i, sizeof(bits));
    out[i] = dtype == DType::kBF16 ? Bf16ToFloat(bits) : F16ToFloat(bits);
  }
}

void ConvertFromFloat(DType dtype, const float* in, int64_t count, void* out) {
  if (count == 0) return;
  if (dtype == DType::kF32) {
    std::memcpy(out, in, static_cast<size_t>(count) * sizeof(float));
    return;
  }
  char* bytes = static_cast<char*>(out);
  for (int64_t i = 0; i < count; ++i) {
    const uint16_t bits = dtype == DType::kBF16 ? FloatToBf16(in[i]) : FloatToF16(in[i]);
    std::memcpy(bytes + 2 * i, &bits, sizeof(bits));
  }
}

}  // namespace skein
