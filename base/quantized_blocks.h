// The blocks of quantised weights, byte by byte. Numbers are little-endian.
//
// Those of GGUF files are kept as ggml lays them out. d and m are a scale and a minimum in F16; q
// is an element's small number, s a scale's and o a minimum's in a superblock.
//
//   type    elements  value                bytes
//   Q4_0    32        d (q - 8)            d, 16 x two q: element i in the low half of byte i,
//                                          element i + 16 in the high one
//   Q4_1    32        d q + m              d, m, 16 x two q, alike
//   Q5_0    32        d (q - 16)           d, 4 x fifth bits (bit i is element i's), 16 x two q's
//                                          lower four bits, alike
//   Q5_1    32        d q + m              d, m, fifth bits and the lower four, alike
//   Q8_0    32        d q                  d, 32 x q, signed
//   IQ4_NL  32        d table[q]           as Q4_0
//   Q2_K    16 x 16   d s q - m o          16 x (s low, o high), 64 x four q, d, m
//   Q3_K    16 x 16   d (s - 32) (q - 4)   32 x third bits, 64 x four q's lower two, 12 bytes of
//                                          16 s of six bits, d
//   Q4_K    8 x 32    d s q - m o          d, m, 12 bytes of 8 s and 8 o of six bits, 128 x two q
//   Q5_K    8 x 32    d s q - m o          as Q4_K, with 32 x fifth bits before the 128
//   Q6_K    16 x 16   d s (q - 32)         128 x two q's lower four bits, 64 x four q's upper two,
//                                          16 x s, signed, d
//   IQ4_XS  8 x 32    d (s - 32) table[q]  d, 2 bytes of the upper two bits of 8 s, 4 bytes of the
//                                          lower four, 128 x two q, each 32 as Q4_0
//
// Superblocks keep q by halves of 128 elements (Q2_K, Q3_K, Q6_K: 32 or 64 bytes, in which the
// elements of one byte are 32 apart) or by quarters of 64 (Q4_K, Q5_K: 32 bytes, low halves first).
//
// Other checkpoints keep elements and scales apart, and scales for rows, or for groups or tiles of
// 32 columns or more. In memory each 32 columns have theirs with them; d is in F32.
//
//   FP8     32        d E4M3(q)            d, 32 x q
//   INT8    32        d q                  d, 32 x q, signed
//   INT4    32        d (q - z)            d, whose lowest 8 bits are z instead, 16 x two q as Q4_0
//
// The d of an INT4 has at most 16 significant bits, as all of F16 and BF16 have, so that the values
// are exact.
#pragma once

#include <array>
#include <bit>
#include <cstdint>

#include "base/dtype.h"

namespace skein {

// What the q of IQ4_NL and IQ4_XS stand for.
inline constexpr std::array<int8_t, 16> kIq4Values = {-127, -104, -83, -65, -49, -35, -22, -10,
                                                      1,    13,   25,  38,  53,  69,  89,  113};

// A scale and a minimum of subblock `i` (0 to 7) of Q4_K's and Q5_K's 12 bytes: six bits each. The
// first four of both lie in the low bits of bytes 0 to 7; the others' low four bits in bytes 8 to
// 11, their upper two on top of the first ones.
struct ScaleAndMin {
  int32_t scale = 0;
  int32_t min = 0;
};
constexpr ScaleAndMin SubblockOf(const uint8_t* packed, int i) {
  if (i < 4) return {packed[i] & 63, packed[i + 4] & 63};
  return {(packed[i + 4] & 15) | (packed[i - 4] >> 6 << 4),
          (packed[i + 4] >> 4) | (packed[i] >> 6 << 4)};
}

// The word of an INT4 block's scale, whose lowest 8 bits are zero, and its zero point.
constexpr uint32_t Int4Scale(float scale, uint8_t zero) {
  return std::bit_cast<uint32_t>(scale) | zero;
}

// Writes the values of `blocks` blocks of a quantised dtype: float arithmetic in the order of the
// table above, a product or a sum at a time. No alignment is asked of `in`.
void DequantizeBlocks(DType dtype, const void* in, int64_t blocks, float* out);

}  // namespace skein
