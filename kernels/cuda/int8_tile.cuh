// Int8 keys and values on their way to matrix instructions. Every int8 number is one of bf16 and of
// f16, so that widening rounds nothing; scales are multiplied with scores and weights, in float.
//
// A weight times a scale is rounded to 16 bits, and an f16 has few of them below 2^-14: of values
// around 1 that is a weight of 1/128. So in f16 numbers are widened to 64ths, and such products are
// 64 times as large: 33,025 at most, of values that were f16 themselves, by a weight of 1.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/cuda/attention_tile.cuh"
#include "kernels/cuda/kv_layout.h"
#include "kernels/cuda/mma.cuh"
#include "kernels/cuda/vectors.cuh"
#include "kernels/packing/kv_codec.h"

namespace skein::kernels::cuda {

// What scales are multiplied with where numbers are widened.
template <typename T>
inline constexpr float kInt8Parts = 1;
template <>
inline constexpr float kInt8Parts<__half> = 64;

// Four int8 numbers as two pairs of T, of so many parts each: bytes 0 and 2 of the word, and bytes
// 1 and 3.
template <typename T>
__device__ void Widen(uint32_t word, uint32_t (&pairs)[2]);

// 0x43xx is 128 + xx for xx below 128, and 256 for 0x80, which is -128 less.
template <>
__device__ inline void Widen<__nv_bfloat16>(uint32_t word, uint32_t (&pairs)[2]) {
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const uint32_t bytes = word >> 8 * i;
    const uint32_t low = (bytes & 0x007f007fu) | 0x43004300u;
    const uint32_t high = (bytes & 0x00800080u) | 0x43004300u;
    const __nv_bfloat162 pair = __hsub2(reinterpret_cast<const __nv_bfloat162&>(low),
                                        reinterpret_cast<const __nv_bfloat162&>(high));
    pairs[i] = reinterpret_cast<const uint32_t&>(pair);
  }
}

// 0x4cxx is 16 + xx / 64, and 0x4c80 is what a zero gives.
template <>
__device__ inline void Widen<__half>(uint32_t word, uint32_t (&pairs)[2]) {
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const uint32_t biased = (word >> 8 * i & 0x00ff00ffu) ^ 0x4c804c80u;
    const uint32_t zero = 0x4c804c80u;
    const __half2 pair =
        __hsub2(reinterpret_cast<const __half2&>(biased), reinterpret_cast<const __half2&>(zero));
    pairs[i] = reinterpret_cast<const uint32_t&>(pair);
  }
}

template <int kWords>
__device__ void LoadWords(const char* from, uint32_t (&words)[kWords]) {
  if constexpr (kWords == 4) {
    const uint4 all = *reinterpret_cast<const uint4*>(from);
    words[0] = all.x, words[1] = all.y, words[2] = all.z, words[3] = all.w;
  } else if constexpr (kWords == 2) {
    const uint2 all = *reinterpret_cast<const uint2*>(from);
    words[0] = all.x, words[1] = all.y;
  } else {
#pragma unroll
    for (int i = 0; i < kWords; ++i) words[i] = reinterpret_cast<const uint32_t*>(from)[i];
  }
}

// Words that lie together, with any head_dim: of 16 columns, or of 8.
template <int kHeadDim>
inline constexpr int kUnitWords = kHeadDim % 64 == 0 ? 4 : 2;

// ---- A warp multiplies a block as it is. Which of an operand's rows and columns stands for which
// column of the head is free, so that each lane reads words of neighbours. ----

// D [16, 8] += A [16, 32] * B [32, 8], of int8. With group and quad as in mma.cuh a lane holds,
// four neighbours in a register: A: rows group (registers 0, 2) and group + 8 (1, 3), columns 4 *
// quad (0, 1) and 16 more (2, 3); B: column group, rows 4 * quad (0) and 16 more (1); D as there.
__device__ inline void MmaInt8(int (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// The first column of a lane's word `w` of a row.
template <int kHeadDim>
__device__ int Int8WordColumn(int w) {
  constexpr int kWords = kUnitWords<kHeadDim>;
  return w / kWords * 16 * kWords + (Lane() % 4 * kWords + w % kWords) * 4;
}

// 16 queries, each as integers of 16 bits times a step, in two digits: step * (256 * high + low).
// So int8 keys need no widening, which would keep a warp busy for longer than they are on their
// way.
template <int kHeadDim>
struct Int8Queries {
  uint32_t high[kHeadDim / 32][4];
  uint32_t low[kHeadDim / 32][4];
  float step[2];

  __device__ void Clear(int half) {
#pragma unroll
    for (int k = 0; k < kHeadDim / 32; ++k) {
      high[k][half] = high[k][half + 2] = low[k][half] = low[k][half + 2] = 0;
    }
    step[half] = 0;
  }
  // The query of row group + 8 * half; zeros where it is not real. words_of(w): its four columns
  // from Int8WordColumn(w) on. A row that is not finite has a step of NaN.
  template <typename T, typename WordsOf>
  __device__ void Load(const WordsOf& words_of, bool real, int half) {
    constexpr int kLaneWords = kHeadDim / 16;
    constexpr int kMost = 127 * 256 + 127;
    uint2 raw[kLaneWords];
    uint32_t largest = 0;
#pragma unroll
    for (int w = 0; w < kLaneWords; ++w) {
      raw[w] = real ? words_of(w) : make_uint2(0, 0);
      const float2 first = FloatsOf<T>(raw[w].x);
      const float2 second = FloatsOf<T>(raw[w].y);
      largest = max(max(largest, max(MagnitudeBits(first.x), MagnitudeBits(first.y))),
                    max(MagnitudeBits(second.x), MagnitudeBits(second.y)));
    }
    largest = max(largest, __shfl_xor_sync(0xffffffffu, largest, 1));
    largest = max(largest, __shfl_xor_sync(0xffffffffu, largest, 2));
    step[half] = largest < 0x7f800000u ? __uint_as_float(largest) / kMost : NAN;
    // What is less gives no score.
    const float steps = step[half] > 0x1p-100f ? 1 / step[half] : 0.0f;
#pragma unroll
    for (int w = 0; w < kLaneWords; ++w) {
      const float2 first = FloatsOf<T>(raw[w].x);
      const float2 second = FloatsOf<T>(raw[w].y);
      const float x[4] = {first.x, first.y, second.x, second.y};
      uint32_t high_word = 0;
      uint32_t low_word = 0;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int whole = max(-kMost, min(kMost, __float2int_rn(x[i] * steps)));
        const int digit = (whole + 128) >> 8;
        const int shift = 8 * (i / 2 + i % 2 * 2);  // as KvInt8Offset says
        high_word |= (static_cast<uint32_t>(digit) & 0xffu) << shift;
        low_word |= (static_cast<uint32_t>(whole - 256 * digit) & 0xffu) << shift;
      }
      high[w / 2][half + w % 2 * 2] = high_word;
      low[w / 2][half + w % 2 * 2] = low_word;
    }
  }
};

// The column of o[d][i] and o[d][2 + i]; that of the next d is the next one.
template <int kHeadDim>
__device__ int Int8SumColumn(int d, int i) {
  return (Lane() % 4 * 2 + i) * (kHeadDim / 8) + d;
}

// s = q * keys^T, of several blocks, without the keys' scales.
template <int kHeadDim, int kBlocks>
__device__ void Int8Scores(const Int8Queries<kHeadDim>& q, char* const (&keys)[kBlocks],
                           BlockScores (&s)[kBlocks]) {
  constexpr int kWords = kUnitWords<kHeadDim>;
  int high[2 * kBlocks][4] = {};
  int low[2 * kBlocks][4] = {};
#pragma unroll
  for (int first = 0; first < kHeadDim / 16; first += kWords) {
    uint32_t words[2 * kBlocks][kWords];
#pragma unroll
    for (int i = 0; i < 2 * kBlocks; ++i) {
      const int row = Lane() / 4 + i % 2 * 8;
      LoadWords(keys[i / 2] + KvInt8Word(kHeadDim, row, Int8WordColumn<kHeadDim>(first)), words[i]);
    }
#pragma unroll
    for (int w = 0; w < kWords; w += 2) {
#pragma unroll
      for (int i = 0; i < 2 * kBlocks; ++i) {
        MmaInt8(high[i], q.high[(first + w) / 2], words[i][w], words[i][w + 1]);
        MmaInt8(low[i], q.low[(first + w) / 2], words[i][w], words[i][w + 1]);
      }
    }
  }
#pragma unroll
  for (int i = 0; i < 2 * kBlocks; ++i) {
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      s[i / 2][i % 2][e] = static_cast<float>(high[i][e] * 256 + low[i][e]) * q.step[e / 2];
    }
  }
}

// o += p * values; p: weights times scales, which are rounded to T.
template <typename T, int kHeadDim>
__device__ void AddInt8Values(const BlockScores& p, const char* values,
                              float (&o)[kHeadDim / 8][4]) {
  constexpr int kWords = kHeadDim / 32;
  BlockScores parts;
#pragma unroll
  for (int i = 0; i < 8; ++i) parts[i / 4][i % 4] = p[i / 4][i % 4] * kInt8Parts<T>;
  uint32_t a[4];
  RoundWeights<T>(parts, a);
  uint32_t words[4][kWords];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int row = Lane() % 4 * 2 + i % 2 + i / 2 * 8;
    LoadWords(values + KvInt8Word(kHeadDim, row, Lane() / 4 * (kHeadDim / 8)), words[i]);
  }
#pragma unroll
  for (int w = 0; w < kWords; ++w) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      // Two bytes of each of two rows: columns i and i + 2.
      const int bytes = i == 0 ? 0x5410 : 0x7632;
      uint32_t b[2][2];
      Widen<T>(__byte_perm(words[0][w], words[1][w], bytes), b[0]);
      Widen<T>(__byte_perm(words[2][w], words[3][w], bytes), b[1]);
      Mma<T>(o[4 * w + i], a, b[0][0], b[1][0]);
      Mma<T>(o[4 * w + i + 2], a, b[0][1], b[1][1]);
    }
  }
}

// Scores of a block times a float for each position.
__device__ inline void ScalePositions(BlockScores& s, const float* scales) {
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const float2 pair = reinterpret_cast<const float2*>(scales)[i * 4 + Lane() % 4];
    s[i][0] *= pair.x, s[i][1] *= pair.y, s[i][2] *= pair.x, s[i][3] *= pair.y;
  }
}

// ---- Threads widen a tile of several blocks, for all of them. ----

// Keys, or values, of kRows positions. place(i, panel): where the panel has rows 8 * i on.
template <typename T, int kHeadDim, int kRows, int kThreads, typename Place>
__device__ void WidenTile(const char* blocks, bool values, int thread, const Place& place) {
  constexpr int kWords = kUnitWords<kHeadDim>;
  constexpr int kPanelCols = KvPanelCols(kHeadDim);
  static_assert(kPanelCols == 16 * kWords);
  constexpr int kPanels = kHeadDim / kPanelCols;
  // A warp takes 8 rows of a panel at a time: no bank conflicts, neither reading nor writing. A
  // lane's row and columns are the same each time, and so is what their places are permuted by.
  constexpr int kEach = kRows / 8 / (kThreads / kWarp);
  static_assert(kEach == 1 || kEach % 2 == 0);
  constexpr int kBlockBytes = KvBlockBytes(kHeadDim, true);
  const int row = Lane() / 4;
  const int unit = Lane() % 4;
  const int first = thread / kWarp * kEach;
  const char* from = blocks + first / 2 * kBlockBytes + first % 2 * 8 * kHeadDim +
                     (values ? KvValuesByte(kHeadDim, true) : 0);
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
#pragma unroll
    for (int panel = 0; panel < kPanels; ++panel) {
      uint32_t words[kWords];
      LoadWords(from + i / 2 * kBlockBytes + i % 2 * 8 * kHeadDim +
                    KvInt8Word(kHeadDim, row, panel * kPanelCols + unit * 4 * kWords),
                words);
#pragma unroll
      for (int w = 0; w < kWords; w += 2) {
        uint32_t left[2];
        uint32_t right[2];
        Widen<T>(words[w], left);
        Widen<T>(words[w + 1], right);
        *reinterpret_cast<uint4*>(place(first + i, panel) +
                                  KvChunkOffset(kHeadDim, row, unit * (kWords / 2) + w / 2)) =
            make_uint4(left[0], left[1], right[0], right[1]);
      }
    }
  }
}

// Scales of kRows positions from `at` on, times kInt8Parts. Values of positions outside of [begin,
// end) may have any: they get 0, since a weight of 0 does not hide a NaN.
template <typename T, int kHeadDim, int kRows>
__device__ void CopyScales(const char* blocks, int at, int begin, int end, int thread, float* keys,
                           float* values) {
  if (thread >= kRows) return;
  const char* block = blocks + thread / kKvBlock * KvBlockBytes(kHeadDim, true);
  const auto scale = [&](bool of_values) {
    return kInt8Parts<T> * reinterpret_cast<const float*>(
                               block + KvScalesByte(kHeadDim, of_values))[thread % kKvBlock];
  };
  keys[thread] = scale(false);
  values[thread] = at + thread >= begin && at + thread < end ? scale(true) : 0.0f;
}

}  // namespace skein::kernels::cuda
