// What makes the residual stream beside products: embeddings, the input port and sums over shards.
// A thread has four columns of a row at a time, as an operand has them: see exchange.cuh.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/cuda/persistent/block.cuh"
#include "kernels/cuda/persistent/exchange.cuh"
#include "kernels/cuda/persistent/shards.cuh"
#include "kernels/cuda/persistent/step.h"
#include "kernels/cuda/present_words.cuh"
#include "kernels/cuda/vectors.cuh"

namespace skein::kernels::cuda {

// Columns 2 * quad, 2 * quad + 1, 8 + 2 * quad and 9 + 2 * quad of a tile, of a row.
struct FourPlace {
  int tile;
  int row;
  int quad;
};

// Of four columns of a vector of the model: gains, or a bias.
struct FourFloats {
  float2 low, high;
};
__device__ inline FourFloats LoadFour(const float* vector, int tile, int quad) {
  const float* const from = vector + tile * kTileCols + 2 * quad;
  return {__ldg(reinterpret_cast<const float2*>(from)),
          __ldg(reinterpret_cast<const float2*>(from + 8))};
}

// Gives four columns times the gain to the products that read the norm. Returns the sum of their
// squares.
template <typename T>
__device__ float PublishNormed(const PersistentStep& step, const StepOp& op, const FourPlace& at,
                               uint2 words, const FourFloats& gains) {
  const float2 a = FloatsOf<T>(words.x);
  const float2 b = FloatsOf<T>(words.y);
  StoreWords(
      PlaceIn(step.arena, step.rows, op.normed) + OperandPlace(at.tile, step.rows, at.row, at.quad),
      make_uint2(RoundedPair<T>(a.x * gains.low.x, a.y * gains.low.y),
                 RoundedPair<T>(b.x * gains.high.x, b.y * gains.high.y)));
  return a.x * a.x + a.y * a.y + b.x * b.x + b.y * b.y;
}
// Of a row's tile. cols: of the vector.
__device__ inline void PublishSquares(const PersistentStep& step, const StepOp& op, int tile,
                                      int row, int cols, float squares) {
  StoreWords(PlaceIn(step.arena, step.rows, op.squares) + SquarePlace(tile, cols / kTileCols, row),
             PresentWord(squares));
}
__device__ inline void PublishFour(const PersistentStep& step, const StepOp& op,
                                   const FourPlace& at, int cols, uint2 words) {
  StoreWords(
      PlaceIn(step.arena, step.rows, op.out) + OperandPlace(at.tile, step.rows, at.row, at.quad),
      words);
  if (op.to_port == 0) return;
  char* const to = step.output + (int64_t{at.row} * cols + at.tile * kTileCols + 2 * at.quad) * 2;
  *reinterpret_cast<uint32_t*>(to) = words.x;
  *reinterpret_cast<uint32_t*>(to + 16) = words.y;
}

// What a model or another stage has may be the bits of an absent word, which stand for NaN.
__device__ inline uint2 MadePresent(uint2 words) {
  if (words.x == kAbsent) words.x = 0x7fff7fff;
  if (words.y == kAbsent) words.y = 0x7fff7fff;
  return words;
}

// Publishes what take(place) gives of all of the vector; each warp of all blocks has some.
template <typename T, typename Take>
__device__ void MakeResidual(const PersistentStep& step, const StepOp& op, const Take& take) {
  const int quads = op.cols / 4;  // of a row
  const int all = step.rows * quads;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  // Blocks in turn, so that a row is little work for many.
#pragma unroll 1
  for (int first = (warp * static_cast<int>(gridDim.x) + static_cast<int>(blockIdx.x)) * kWarp;
       first < all; first += kComputeThreads * static_cast<int>(gridDim.x)) {
    // Whole warps, since four lanes have a tile together.
    const int i = min(first + Lane(), all - 1);
    const FourPlace at = {i % quads / 4, i / quads, i % 4};
    FourFloats gains = {};
    if (op.gain != nullptr) gains = LoadFour(op.gain, at.tile, at.quad);
    const uint2 words = take(at);
    const bool real = first + Lane() < all;
    __syncwarp();
    if (op.gain != nullptr) {
      float squares = 0;
      if (real) squares = PublishNormed<T>(step, op, at, words, gains);
      squares = QuadSum(squares);
      if (real && at.quad == 0) PublishSquares(step, op, at.tile, at.row, op.cols, squares);
    }
    if (real) PublishFour(step, op, at, op.cols, words);
  }
}

// Of a token's row in this shard's part of the table; zeros where it is in none.
template <typename T>
__device__ uint2 EmbeddedFour(const PersistentStep& step, const StepOp& op, const FourPlace& at) {
  const int id = step.token_ids[at.row] - op.first_id;
  if (id < 0 || id >= op.count) return {};
  const auto* const from = static_cast<const T*>(op.memory) + int64_t{id} * op.stride +
                           at.tile * kTileCols + 2 * at.quad;
  return {*reinterpret_cast<const uint32_t*>(from), *reinterpret_cast<const uint32_t*>(from + 8)};
}

template <typename T>
__device__ __noinline__ void Embed(const PersistentStep& step, const BlockMemory& memory,
                                   const StepOp& op) {
  if (op.sum < 0) {
    MakeResidual<T>(
        step, op, [&](const FourPlace& at) { return MadePresent(EmbeddedFour<T>(step, op, at)); });
    return;
  }
  const ShardSum sum(step, memory.first_sum, op, op.cols);
  const int quads = op.cols / 4;
  for (int i = static_cast<int>(blockIdx.x) * kComputeThreads + static_cast<int>(threadIdx.x);
       i < step.rows * quads; i += static_cast<int>(gridDim.x) * kComputeThreads) {
    const FourPlace at = {i % quads / 4, i / quads, i % 4};
    sum.Send(sum.PacketOf(at.tile, at.row, at.quad), EmbeddedFour<T>(step, op, at));
  }
}

template <typename T>
__device__ __noinline__ void TakeIn(const PersistentStep& step, const StepOp& op) {
  MakeResidual<T>(step, op, [&](const FourPlace& at) {
    const char* const from =
        step.input + (int64_t{at.row} * op.cols + at.tile * kTileCols + 2 * at.quad) * 2;
    return MadePresent(make_uint2(*reinterpret_cast<const uint32_t*>(from),
                                  *reinterpret_cast<const uint32_t*>(from + 16)));
  });
}

// out = old + bias + what the shards have sent, rounded once.
template <typename T>
__device__ __noinline__ void SumOverShards(const PersistentStep& step, const BlockMemory& memory,
                                           const StepOp& op, int number) {
  const ShardSum shards(step, memory.first_sum, op, op.cols);
  if (op.sum == 0 && blockIdx.x == 0 && threadIdx.x < kWarp) {
    shards.template ExchangeHeadsOfStep<T>(number);
  }
  MakeResidual<T>(step, op, [&](const FourPlace& at) {
    float sum[4] = {};
    if (op.bias != nullptr) {
      const FourFloats bias = LoadFour(op.bias, at.tile, at.quad);
      sum[0] = bias.low.x, sum[1] = bias.low.y, sum[2] = bias.high.x, sum[3] = bias.high.y;
    }
    const bool has_old = op.old != StepOp::kNowhere;
    const char* const old =
        PlaceIn(step.arena, step.rows, op.old) + OperandPlace(at.tile, step.rows, at.row, at.quad);
    uint2 look = {};
    if (has_old) look = LoadWords<uint2>(old);
    shards.AddTo<T>(sum, shards.PacketOf(at.tile, at.row, at.quad), number);
    if (has_old) {
      const uint2 words = Await(old, look, step, number);
      const float2 low = FloatsOf<T>(words.x);
      const float2 high = FloatsOf<T>(words.y);
      sum[0] += low.x, sum[1] += low.y, sum[2] += high.x, sum[3] += high.y;
    }
    return MadePresent(make_uint2(RoundedPair<T>(sum[0], sum[1]), RoundedPair<T>(sum[2], sum[3])));
  });
}

}  // namespace skein::kernels::cuda
