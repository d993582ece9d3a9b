// Puts together what workers of decode attention have of the same KV head: sums of weight * value,
// each with its largest exponent and its sum of weights.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>

#include "kernels/cuda/attention_tile.cuh"
#include "kernels/cuda/decode_attention.h"
#include "kernels/cuda/decode_plan.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/vectors.cuh"

namespace skein::kernels::cuda {

inline constexpr int kCombineThreads = 256;

// A KV head's partials, for one of its query heads.
template <int kHeadDim>
struct Partials {
  const DecodeAttention& op;
  Split split;
  int row;

  __device__ int group() const { return op.heads / op.kv.kv_heads; }
  __device__ int count() const { return split.last - split.first + 1; }
  __device__ const float* At(int i) const {
    const int64_t index = 2 * (split.first + i) + (i == 0 ? 1 : 0);
    return static_cast<const float*>(op.partials) + index * group() * PartialFloats(kHeadDim);
  }
  // Largest exponent, sum of weights.
  __device__ float2 Summary(int i) const {
    return reinterpret_cast<const float2*>(At(i) + group() * kHeadDim)[row];
  }
  __device__ void Add(int i, float weight, int column, float4& sum) const {
    const float4 o = reinterpret_cast<const float4*>(At(i) + row * kHeadDim)[column];
    sum.x += o.x * weight, sum.y += o.y * weight, sum.z += o.z * weight, sum.w += o.w * weight;
  }
  template <typename T>
  __device__ void Write(const float4& sum, float total, int column) const {
    T* out = static_cast<T*>(op.out) + split.row * op.out_stride +
             (int64_t{split.kv_head} * group() + row) * kHeadDim + column * 4;
    const float inverse = 1.0f / total;
    *reinterpret_cast<uint2*>(out) = make_uint2(RoundedPair<T>(sum.x * inverse, sum.y * inverse),
                                                RoundedPair<T>(sum.z * inverse, sum.w * inverse));
  }
};

// Whether there is a split for this block. The plan is no work of the kernel right before, which
// has waited for it.
__device__ inline bool FindSplit(const DecodeAttention& op, Split& split) {
  const PlanView plan = ViewOf(op.plan, DecodeWorkers(op.multiprocessors));
  split = LoadRecord(plan.splits + blockIdx.x);
  const bool found = static_cast<int>(blockIdx.x) < __ldcg(plan.splits_count);
  LetNextBegin();
  WaitForPrevious();
  return found;
}

// Of few KV heads, which many workers have parts of. Blocks (splits, group): puts the parts of one
// query head together. First every thread learns the weight of some partials, then each has 4
// columns of every parts-th partial, and the block adds them up.
template <typename T, int kHeadDim>
__global__ void __launch_bounds__(kCombineThreads) CombineManyKernel(DecodeAttention op) {
  constexpr int kColumns = kHeadDim / 4;  // of threads
  constexpr int kParts = kCombineThreads / kColumns;
  extern __shared__ float weights[];  // [partials]
  __shared__ float4 sums[kParts][kColumns];
  __shared__ float scratch[kWarp];
  Split split;
  if (!FindSplit(op, split)) return;
  const Partials<kHeadDim> partials = {op, split, static_cast<int>(blockIdx.y)};
  const int count = partials.count();

  const int thread = static_cast<int>(threadIdx.x);
  float largest = -INFINITY;
  for (int i = thread; i < count; i += kCombineThreads) {
    weights[i] = partials.Summary(i).x;
    largest = fmaxf(largest, weights[i]);
  }
  largest = BlockMax(largest, scratch);
  float total = 0;
  for (int i = thread; i < count; i += kCombineThreads) {
    const float2 summary = partials.Summary(i);
    weights[i] = Exp2(summary.x - largest);
    total += summary.y * weights[i];
  }
  __syncthreads();
  total = BlockSum(total, scratch);

  const int part = thread / kColumns;
  const int column = thread % kColumns;
  float4 sum = {};
  if (part < kParts) {
#pragma unroll 8
    for (int i = part; i < count; i += kParts) partials.Add(i, weights[i], column, sum);
    sums[part][column] = sum;
  }
  __syncthreads();
  if (part > 0) return;
  for (int i = 1; i < min(kParts, count); ++i) {
    const float4 more = sums[i][column];
    sum.x += more.x, sum.y += more.y, sum.z += more.z, sum.w += more.w;
  }
  partials.template Write<T>(sum, total, column);
}

// Of many KV heads, which a few workers each have parts of. Blocks (splits): a thread has 4 columns
// of a query head, learns all weights by itself, and waits for nobody.
template <typename T, int kHeadDim>
__global__ void __launch_bounds__(kCombineThreads) CombineFewKernel(DecodeAttention op) {
  constexpr int kColumns = kHeadDim / 4;
  Split split;
  if (!FindSplit(op, split)) return;
  const int group = op.heads / op.kv.kv_heads;
  for (int i = static_cast<int>(threadIdx.x); i < group * kColumns; i += kCombineThreads) {
    const Partials<kHeadDim> partials = {op, split, i / kColumns};
    const int count = partials.count();
    float largest = -INFINITY;
    for (int p = 0; p < count; ++p) largest = fmaxf(largest, partials.Summary(p).x);
    float total = 0;
    float4 sum = {};
#pragma unroll 4
    for (int p = 0; p < count; ++p) {
      const float2 summary = partials.Summary(p);
      const float weight = Exp2(summary.x - largest);
      total += summary.y * weight;
      partials.Add(p, weight, i % kColumns, sum);
    }
    partials.template Write<T>(sum, total, i % kColumns);
  }
}

}  // namespace skein::kernels::cuda
