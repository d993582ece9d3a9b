// What attention kernels share: queries in registers, products with one block of the KV cache, and
// the online softmax. A warp works on 16 query rows; see mma.cuh for who holds what.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/cuda/kv_layout.h"
#include "kernels/cuda/mma.cuh"
#include "kernels/cuda/vectors.cuh"

namespace skein::kernels::cuda {

// What exponents are multiplied with, so that exp2 does.
inline constexpr float kLog2E = 1.4426950408889634f;

// 2^x, to 2 units in the last place; 0 for -inf.
__device__ inline float Exp2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// Scores [16, 16] of a block: of positions 0 to 7 and 8 to 15 of it.
using BlockScores = float[2][4];

// Weights of a block as an operand A, rounded to T.
template <typename T>
__device__ void RoundWeights(const BlockScores& p, uint32_t (&a)[4]) {
  a[0] = RoundedPair<T>(p[0][0], p[0][1]);
  a[1] = RoundedPair<T>(p[0][2], p[0][3]);
  a[2] = RoundedPair<T>(p[1][0], p[1][1]);
  a[3] = RoundedPair<T>(p[1][2], p[1][3]);
}

// s += q * keys^T, of the block at `keys` in shared memory.
template <typename T, int kHeadDim>
__device__ void AddScores(const uint32_t (&q)[kHeadDim / 16][4], uint32_t keys, BlockScores& s) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int row = lane % 8 + lane / 16 * 8;
#pragma unroll
  for (int k = 0; k < kHeadDim / 16; ++k) {
    uint32_t b[4];
    const int at = KvChunkOffset(kHeadDim, row, 2 * k + lane / 8 % 2);
    LoadMatrices(b, keys + at * static_cast<int>(sizeof(T)));
    Mma<T>(s[0], q[k], b[0], b[1]);
    Mma<T>(s[1], q[k], b[2], b[3]);
  }
}

// o += p * values, of the block at `values` in shared memory; p: its weights, rounded to T.
template <typename T, int kHeadDim>
__device__ void AddValues(const BlockScores& p, uint32_t values, float (&o)[kHeadDim / 8][4]) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  uint32_t a[4];
  RoundWeights<T>(p, a);
#pragma unroll
  for (int d = 0; d < kHeadDim / 16; ++d) {
    uint32_t b[4];
    const int at = KvChunkOffset(kHeadDim, lane % 16, 2 * d + lane / 16);
    LoadMatricesTransposed(b, values + at * static_cast<int>(sizeof(T)));
    Mma<T>(o[2 * d], a, b[0], b[1]);
    Mma<T>(o[2 * d + 1], a, b[2], b[3]);
  }
}

__device__ inline float QuadMax(float x) {
  x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 1));
  return fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 2));
}
__device__ inline float QuadSum(float x) {
  x += __shfl_xor_sync(0xffffffffu, x, 1);
  return x + __shfl_xor_sync(0xffffffffu, x, 2);
}

// The softmax of the two rows that a lane has parts of, as far as it is known.
struct OnlineSoftmax {
  float largest[2] = {-INFINITY, -INFINITY};  // of the scores so far, unscaled
  float sum[2] = {0, 0};                      // of the weights, this lane's part
  float shrink[2] = {1, 1};                   // factor for the sums of weight * value so far

  // Turns scores into weights, in place. scale: of scores, as exponents of 2; positive. A row may
  // have no score that is not -inf; its sum stays 0.
  template <int kBlocks>
  __device__ void Weigh(BlockScores (&s)[kBlocks], float scale) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float top = largest[half];
#pragma unroll
      for (int b = 0; b < kBlocks; ++b) {
        top = fmaxf(top, fmaxf(fmaxf(s[b][0][2 * half], s[b][0][2 * half + 1]),
                               fmaxf(s[b][1][2 * half], s[b][1][2 * half + 1])));
      }
      top = QuadMax(top);
      const float anchor = top == -INFINITY ? 0.0f : top * scale;
      // Exactly 1 where nothing changes: the difference of a product and its rounding is not 0.
      shrink[half] = largest[half] == top ? 1.0f : Exp2(largest[half] * scale - anchor);
      sum[half] *= shrink[half];
      largest[half] = top;
#pragma unroll
      for (int b = 0; b < kBlocks; ++b) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          float& first = s[b][i][2 * half];
          float& second = s[b][i][2 * half + 1];
          first = Exp2(first * scale - anchor);
          second = Exp2(second * scale - anchor);
          sum[half] += first + second;
        }
      }
    }
  }

  // o: sums of weight * value of columns of 8.
  template <int kTiles>
  __device__ void Shrink(float (&o)[kTiles][4]) const {
    // Mostly a row's largest score stays.
    if (!__any_sync(0xffffffffu, shrink[0] != 1.0f || shrink[1] != 1.0f)) return;
#pragma unroll
    for (int d = 0; d < kTiles; ++d) {
#pragma unroll
      for (int i = 0; i < 4; ++i) o[d][i] *= shrink[i / 2];
    }
  }
};

// Scores of positions outside of [begin, end) become -inf; `position`: of the block's first one.
// Rows of a lane may differ in what they see.
__device__ inline void MaskScores(BlockScores& s, int position, const int (&begin)[2],
                                  const int (&end)[2]) {
  const int quad = static_cast<int>(threadIdx.x) % 4;
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const int p = position + i / 4 * 8 + quad * 2 + i % 2;
    const int half = i / 2 % 2;
    if (p < begin[half] || p >= end[half]) s[i / 4][i % 4] = -INFINITY;
  }
}

}  // namespace skein::kernels::cuda
