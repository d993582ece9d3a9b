#include "base/quantized_blocks.h"

#include <bit>
#include <cstring>

namespace skein {
namespace {

// A block's number in F16 at `at`.
float Half(const uint8_t* at) {
  uint16_t bits = 0;
  std::memcpy(&bits, at, sizeof(bits));
  return F16ToFloat(bits);
}

// 32 elements of four bits; element i + 16 shares element i's byte.
template <typename Value>
void Nibbles(const uint8_t* q, float* out, const Value& value) {
  for (int i = 0; i < 16; ++i) {
    out[i] = value(q[i] & 15, i);
    out[i + 16] = value(q[i] >> 4, i + 16);
  }
}

void Q4_0(const uint8_t* in, float* out) {
  const float d = Half(in);
  Nibbles(in + 2, out, [d](int q, int) { return static_cast<float>(q - 8) * d; });
}

void Q4_1(const uint8_t* in, float* out) {
  const float d = Half(in);
  const float m = Half(in + 2);
  Nibbles(in + 4, out, [d, m](int q, int) { return static_cast<float>(q) * d + m; });
}

int FifthBit(const uint8_t* bits, int i) { return (bits[i / 8] >> i % 8 & 1) << 4; }

void Q5_0(const uint8_t* in, float* out) {
  const float d = Half(in);
  const uint8_t* high = in + 2;
  Nibbles(in + 6, out,
          [d, high](int q, int i) { return static_cast<float>((q | FifthBit(high, i)) - 16) * d; });
}

void Q5_1(const uint8_t* in, float* out) {
  const float d = Half(in);
  const float m = Half(in + 2);
  const uint8_t* high = in + 4;
  Nibbles(in + 8, out,
          [d, m, high](int q, int i) { return static_cast<float>(q | FifthBit(high, i)) * d + m; });
}

void Q8_0(const uint8_t* in, float* out) {
  const float d = Half(in);
  for (int i = 0; i < 32; ++i) out[i] = static_cast<float>(static_cast<int8_t>(in[2 + i])) * d;
}

void Iq4Nl(const uint8_t* in, float* out) {
  const float d = Half(in);
  Nibbles(in + 2, out, [d](int q, int) { return d * static_cast<float>(kIq4Values[q]); });
}

void Q2_K(const uint8_t* in, float* out) {
  const uint8_t* scales = in;
  const uint8_t* q = in + 16;
  const float d = Half(in + 80);
  const float m = Half(in + 82);
  for (int i = 0; i < 256; ++i) {
    const int half = i / 128;
    const int shift = i % 128 / 32 * 2;
    const uint8_t scale = scales[i / 16];
    const float scaled = d * static_cast<float>(scale & 15);
    const float min = m * static_cast<float>(scale >> 4);
    out[i] = scaled * static_cast<float>(q[half * 32 + i % 32] >> shift & 3) - min;
  }
}

void Q3_K(const uint8_t* in, float* out) {
  const uint8_t* high = in;
  const uint8_t* q = in + 32;
  const uint8_t* packed = in + 96;
  const float d = Half(in + 108);
  for (int i = 0; i < 256; ++i) {
    // Scale s has its low four bits in byte s % 8, its upper two in byte 8 + s % 4.
    const int s = i / 16;
    const int low = s < 8 ? packed[s] & 15 : packed[s - 8] >> 4;
    const int scale = (low | (packed[8 + s % 4] >> (s / 4 * 2) & 3) << 4) - 32;
    const int half = i / 128;
    const int shift = i % 128 / 32 * 2;
    const int third = high[i % 32] >> (i / 32) & 1;
    const int value = (q[half * 32 + i % 32] >> shift & 3) - (third ? 0 : 4);
    out[i] = d * static_cast<float>(scale) * static_cast<float>(value);
  }
}

// Q4_K, and Q5_K where `high` holds fifth bits.
void Quarters(const uint8_t* in, const uint8_t* high, const uint8_t* q, float* out) {
  const float d = Half(in);
  const float m = Half(in + 2);
  for (int sub = 0; sub < 8; ++sub) {
    const ScaleAndMin pair = SubblockOf(in + 4, sub);
    const float scale = d * static_cast<float>(pair.scale);
    const float min = m * static_cast<float>(pair.min);
    for (int i = 0; i < 32; ++i) {
      const int low = q[sub / 2 * 32 + i] >> (sub % 2 * 4) & 15;
      const int fifth = high == nullptr ? 0 : (high[i] >> sub & 1) << 4;
      out[sub * 32 + i] = scale * static_cast<float>(low | fifth) - min;
    }
  }
}

void Q4_K(const uint8_t* in, float* out) { Quarters(in, nullptr, in + 16, out); }
void Q5_K(const uint8_t* in, float* out) { Quarters(in, in + 16, in + 48, out); }

void Q6_K(const uint8_t* in, float* out) {
  const uint8_t* low = in;
  const uint8_t* high = in + 128;
  const uint8_t* scales = in + 192;
  const float d = Half(in + 208);
  for (int i = 0; i < 256; ++i) {
    const int half = i / 128;
    const int quarter = i % 128 / 32;
    const int four = low[half * 64 + i % 64] >> (quarter / 2 * 4) & 15;
    const int two = high[half * 32 + i % 32] >> (quarter * 2) & 3;
    const auto scale = static_cast<float>(static_cast<int8_t>(scales[i / 16]));
    out[i] = d * scale * static_cast<float>((four | two << 4) - 32);
  }
}

void Iq4Xs(const uint8_t* in, float* out) {
  const float d = Half(in);
  const int upper = in[2] | in[3] << 8;
  for (int sub = 0; sub < 8; ++sub) {
    const int four = in[4 + sub / 2] >> (sub % 2 * 4) & 15;
    const float scale = d * static_cast<float>((four | (upper >> (2 * sub) & 3) << 4) - 32);
    Nibbles(in + 8 + sub * 16, out + sub * 32,
            [scale](int q, int) { return scale * static_cast<float>(kIq4Values[q]); });
  }
}

uint32_t Word(const uint8_t* at) {
  uint32_t word = 0;
  std::memcpy(&word, at, sizeof(word));
  return word;
}

void Fp8(const uint8_t* in, float* out) {
  const auto d = std::bit_cast<float>(Word(in));
  for (int i = 0; i < 32; ++i) out[i] = d * E4M3ToFloat(in[4 + i]);
}

void Int8(const uint8_t* in, float* out) {
  const auto d = std::bit_cast<float>(Word(in));
  for (int i = 0; i < 32; ++i) out[i] = d * static_cast<float>(static_cast<int8_t>(in[4 + i]));
}

void Int4(const uint8_t* in, float* out) {
  const uint32_t word = Word(in);
  const auto d = std::bit_cast<float>(word & ~0xFFu);
  const int zero = static_cast<int>(word & 0xFFu);
  Nibbles(in + 4, out, [d, zero](int q, int) { return d * static_cast<float>(q - zero); });
}

using Dequantize = void (*)(const uint8_t* in, float* out);

Dequantize OfType(DType dtype) {
  switch (dtype) {
    case DType::kQ4_0:
      return Q4_0;
    case DType::kQ4_1:
      return Q4_1;
    case DType::kQ5_0:
      return Q5_0;
    case DType::kQ5_1:
      return Q5_1;
    case DType::kQ8_0:
      return Q8_0;
    case DType::kQ2_K:
      return Q2_K;
    case DType::kQ3_K:
      return Q3_K;
    case DType::kQ4_K:
      return Q4_K;
    case DType::kQ5_K:
      return Q5_K;
    case DType::kQ6_K:
      return Q6_K;
    case DType::kIQ4_NL:
      return Iq4Nl;
    case DType::kIQ4_XS:
      return Iq4Xs;
    case DType::kFp8:
      return Fp8;
    case DType::kInt8:
      return Int8;
    case DType::kInt4:
      return Int4;
    default:
      return nullptr;  // plain
  }
}

}  // namespace

void DequantizeBlocks(DType dtype, const void* in, int64_t blocks, float* out) {
  const Dequantize dequantize = OfType(dtype);
  const auto* bytes = static_cast<const uint8_t*>(in);
  for (int64_t b = 0; b < blocks; ++b) {
    dequantize(bytes + b * BlockBytes(dtype), out + b * BlockElements(dtype));
  }
}

}  // namespace skein
