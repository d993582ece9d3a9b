// What a warp does with blocks of the KV cache for one row: a KV head's queries, one or two for
// each row of mma's operand A, against 16 positions at a time.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <type_traits>

#include "kernels/cuda/attention_tile.cuh"
#include "kernels/cuda/bulk_copy.cuh"
#include "kernels/cuda/int8_tile.cuh"
#include "kernels/cuda/vectors.cuh"

namespace skein::kernels::cuda {

template <typename T, int kHeadDim, bool kInt8>
struct DecodeTile {
  // What is known of a KV head: softmax, and sums of weight * value.
  struct State {
    OnlineSoftmax softmax;
    float o[kHeadDim / 8][4] = {};
  };

  // As products with the cache's elements take them.
  std::conditional_t<kInt8, Int8Queries<kHeadDim>, uint32_t[kHeadDim / 16][4]> q;

  // Queries lie `stride` elements apart; those from `group` on are zeros.
  __device__ void LoadQueries(const T* head, int stride, int group) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = Lane() / 4 + half * 8;
      if constexpr (kInt8) {
        q.template Load<T>(
            [&](int w) {
              return *reinterpret_cast<const uint2*>(head + row * stride +
                                                     Int8WordColumn<kHeadDim>(w));
            },
            row < group, half);
      } else {
#pragma unroll
        for (int k = 0; k < kHeadDim / 16; ++k) {
          const T* pair = head + row * stride + k * 16 + Lane() % 4 * 2;
          q[k][half] = row < group ? *reinterpret_cast<const uint32_t*>(pair) : 0;
          q[k][half + 2] = row < group ? *reinterpret_cast<const uint32_t*>(pair + 8) : 0;
        }
      }
    }
  }

  // Makes the queries of rows Lane() / 4 + 8 * half zeros.
  __device__ void ClearQueries(int half) {
    if constexpr (kInt8) {
      q.Clear(half);
    } else {
#pragma unroll
      for (int k = 0; k < kHeadDim / 16; ++k) q[k][half] = q[k][half + 2] = 0;
    }
  }

  // Positions outside of [begin, end) may hold anything, and a weight of 0 does not hide a NaN.
  __device__ static void ClearValues(char* block, int position, int begin, int end) {
    if constexpr (kInt8) {
      auto* scales = reinterpret_cast<float*>(block + KvScalesByte(kHeadDim, true));
      const bool unseen = position + Lane() < begin || position + Lane() >= end;
      if (Lane() < kKvBlock && unseen) scales[Lane()] = 0;
      FenceBeforeBulkCopy();
      __syncwarp();
      return;
    }
    T* values = reinterpret_cast<T*>(block + KvValuesByte(kHeadDim, kInt8));
    for (int i = Lane(); i < kKvBlock * kHeadDim / kKvChunk; i += kWarp) {
      const int row = i / (kHeadDim / kKvChunk);
      if (position + row >= begin && position + row < end) continue;
      const int at = KvChunkOffset(kHeadDim, row, i % (kHeadDim / kKvChunk));
      *reinterpret_cast<uint4*>(values + at) = make_uint4(0, 0, 0, 0);
    }
    FenceBeforeBulkCopy();
    __syncwarp();
  }

  __device__ static const float* Scales(const char* block, bool of_values) {
    return reinterpret_cast<const float*>(block + KvScalesByte(kHeadDim, of_values));
  }

  // Adds kBlocks blocks, which follow each other, from `position` on. Positions in [begin, end) are
  // seen. scale: of scores.
  template <int kBlocks>
  __device__ void Attend(char* const (&blocks)[kBlocks], int position, int begin, int end,
                         float scale, State& state) {
    BlockScores s[kBlocks] = {};
    if constexpr (kInt8) {
      Int8Scores(q, blocks, s);
#pragma unroll
      for (int b = 0; b < kBlocks; ++b) ScalePositions(s[b], Scales(blocks[b], false));
    } else {
      static_assert(kBlocks == 1);
      AddScores<T, kHeadDim>(q, SharedAddress(blocks[0]), s[0]);
    }
    if (position < begin || position + kBlocks * kKvBlock > end) {
      const int begins[2] = {begin, begin};
      const int ends[2] = {end, end};
#pragma unroll
      for (int b = 0; b < kBlocks; ++b) {
        MaskScores(s[b], position + b * kKvBlock, begins, ends);
        ClearValues(blocks[b], position + b * kKvBlock, begin, end);
      }
    }
    state.softmax.Weigh(s, scale * kLog2E);
    state.softmax.Shrink(state.o);
#pragma unroll
    for (int b = 0; b < kBlocks; ++b) {
      const char* values = blocks[b] + KvValuesByte(kHeadDim, kInt8);
      if constexpr (kInt8) {
        ScalePositions(s[b], Scales(blocks[b], true));
        AddInt8Values<T, kHeadDim>(s[b], values, state.o);
      } else {
        AddValues<T, kHeadDim>(s[b], SharedAddress(values), state.o);
      }
    }
  }

  // Calls f(column, sum, next column's sum) for this lane's sums of row Lane() / 4 + 8 * half.
  template <typename F>
  __device__ static void ForEachPair(const State& state, int half, const F& f) {
#pragma unroll
    for (int d = 0; d < kHeadDim / 8; ++d) {
      const auto& sums = state.o[d];
      if constexpr (!kInt8) {
        f(d * 8 + Lane() % 4 * 2, sums[2 * half], sums[2 * half + 1]);
      } else if (d % 2 == 0) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          f(Int8SumColumn<kHeadDim>(d, i), sums[2 * half + i], state.o[d + 1][2 * half + i]);
        }
      }
    }
  }
};

}  // namespace skein::kernels::cuda
