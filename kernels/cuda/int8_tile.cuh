// Int8 keys and values on their way to matrix instructions. Every int8 number is one of bf16 and of
// f16, so that widening rounds nothing; scales are multiplied with scores and weights, in float.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/cuda/attention_tile.cuh"
#include "kernels/cuda/kv_layout.h"
#include "kernels/cuda/mma.cuh"
#include "kernels/cuda/vectors.cuh"

namespace skein::kernels::cuda {

// Four int8 numbers as two pairs of T: bytes 0 and 2 of the word, and bytes 1 and 3.
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

// 0x64xx is 1024 + xx, and 0x6480 is what a zero gives.
template <>
__device__ inline void Widen<__half>(uint32_t word, uint32_t (&pairs)[2]) {
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const uint32_t biased = (word >> 8 * i & 0x00ff00ffu) ^ 0x64806480u;
    const uint32_t zero = 0x64806480u;
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

// The column of the pair in register `half` (0 or 1: columns 0 or 8 of a k of 16) of q[k].
template <int kHeadDim>
__device__ int Int8QueryColumn(int k, int half) {
  constexpr int kWords = kUnitWords<kHeadDim>;
  return k / kWords * 16 * kWords + (Lane() % 4 * kWords + k % kWords) * 4 + half * 2;
}
// The column of o[d][i] and o[d][2 + i]; that of the next d is the next one.
template <int kHeadDim>
__device__ int Int8SumColumn(int d, int i) {
  return (Lane() % 4 * 2 + i) * (kHeadDim / 8) + d;
}

// s += q * keys^T, of several blocks, without scales.
template <typename T, int kHeadDim, int kBlocks>
__device__ void AddInt8Scores(const uint32_t (&q)[kHeadDim / 16][4], char* const (&keys)[kBlocks],
                              BlockScores (&s)[kBlocks]) {
  constexpr int kWords = kUnitWords<kHeadDim>;
#pragma unroll
  for (int k = 0; k < kHeadDim / 16; k += kWords) {
    uint32_t words[kBlocks][2][kWords];
#pragma unroll
    for (int i = 0; i < 2 * kBlocks; ++i) {
      const int row = Lane() / 4 + i % 2 * 8;
      LoadWords(keys[i / 2] + KvInt8Word(kHeadDim, row, Int8QueryColumn<kHeadDim>(k, 0)),
                words[i / 2][i % 2]);
    }
#pragma unroll
    for (int w = 0; w < kWords; ++w) {
#pragma unroll
      for (int i = 0; i < 2 * kBlocks; ++i) {
        uint32_t b[2];
        Widen<T>(words[i / 2][i % 2][w], b);
        Mma<T>(s[i / 2][i % 2], q[k + w], b[0], b[1]);
      }
    }
  }
}

// o += p * values; p: weights times scales, rounded to T.
template <typename T, int kHeadDim>
__device__ void AddInt8Values(const BlockScores& p, const char* values,
                              float (&o)[kHeadDim / 8][4]) {
  constexpr int kWords = kHeadDim / 32;
  uint32_t a[4];
  RoundWeights<T>(p, a);
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

// Scales of kRows positions from `at` on. Values of positions outside of [begin, end) may have any:
// they get 0, since a weight of 0 does not hide a NaN.
template <int kHeadDim, int kRows>
__device__ void CopyScales(const char* blocks, int at, int begin, int end, int thread, float* keys,
                           float* values) {
  if (thread >= kRows) return;
  const char* block = blocks + thread / kKvBlock * KvBlockBytes(kHeadDim, true);
  const auto scale = [&](bool of_values) {
    return reinterpret_cast<const float*>(block +
                                          KvScalesByte(kHeadDim, of_values))[thread % kKvBlock];
  };
  keys[thread] = scale(false);
  values[thread] = at + thread >= begin && at + thread < end ? scale(true) : 0.0f;
}

}  // namespace skein::kernels::cuda
