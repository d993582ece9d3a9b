#include <algorithm>

#include "absl/strings/str_cat.h"
#include "kernels/cuda/device_draws.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/load_kernels.h"

namespace skein::kernels::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWarp = 32;
constexpr int kPerLoad = 4;
// Logits of a block: a row of 128 k is spread over 16, and read in some 2 us.
constexpr int64_t kChunk = 8192;

// Greater for a greater logit, then for a lower id, and greatest for NaN; none is 0.
__device__ uint64_t ScoreOf(float logit, uint32_t token) {
  if (isnan(logit)) return ~uint64_t{0};
  const uint32_t bits = __float_as_uint(logit + 0.0f);  // one zero of both
  const uint32_t key = bits & 0x80000000u ? ~bits : bits | 0x80000000u;
  return uint64_t{key} << 32 | ~token;
}
__device__ DeviceDraw::Token TokenOf(uint64_t score, int32_t first_id) {
  if (score == ~uint64_t{0}) return {NAN, -1};
  const auto key = static_cast<uint32_t>(score >> 32);
  const uint32_t bits = key & 0x80000000u ? key ^ 0x80000000u : ~key;
  return {__uint_as_float(bits), first_id + static_cast<int32_t>(~static_cast<uint32_t>(score))};
}

__device__ uint64_t LargestOfBlock(uint64_t score) {
  __shared__ uint64_t of_warps[kThreads / kWarp];
  for (int lanes = kWarp / 2; lanes > 0; lanes /= 2) {
    score = max(score, __shfl_xor_sync(~0u, score, lanes));
  }
  if (threadIdx.x % kWarp == 0) of_warps[threadIdx.x / kWarp] = score;
  __syncthreads();
  for (const uint64_t other : of_warps) score = max(score, other);
  return score;
}

// Blocks (chunk of a row, draw). The block that comes last puts the row's result down.
__global__ void __launch_bounds__(kThreads) GreedyDrawsKernel(GreedyDraws op) {
  WaitForPrevious();
  LetNextBegin();
  const SetPair row = op.rows[blockIdx.y];
  const float* const logits = op.of.logits + int64_t{row.index} * op.of.logits_stride;
  const int64_t begin = int64_t{blockIdx.x} * kChunk;
  const int64_t end = min(begin + kChunk, op.of.tokens);
  uint64_t score = 0;
  for (int64_t t = begin + threadIdx.x * kPerLoad; t < end; t += kThreads * kPerLoad) {
    // The row's stride covers a load that begins in it.
    const float4 four = *reinterpret_cast<const float4*>(logits + t);
    const float values[kPerLoad] = {four.x, four.y, four.z, four.w};
#pragma unroll
    for (int i = 0; i < kPerLoad; ++i) {
      if (t + i < end) score = max(score, ScoreOf(values[i], static_cast<uint32_t>(t + i)));
    }
  }
  score = LargestOfBlock(score);
  if (threadIdx.x != 0) return;
  auto* const best = reinterpret_cast<unsigned long long*>(op.best + blockIdx.y);
  atomicMax(best, score);
  __threadfence();
  if (atomicAdd(op.arrived + blockIdx.y, 1u) + 1 < gridDim.x) return;
  __threadfence();
  const DeviceDraw::Token token = TokenOf(atomicExch(best, 0ull), op.of.first_id);
  op.arrived[blockIdx.y] = 0;
  if (op.candidates != nullptr) {
    op.candidates[blockIdx.y] = {token.logit, static_cast<float>(token.id)};
    return;
  }
  op.of.drawn[blockIdx.y].largest = token.logit;
  op.of.drawn[blockIdx.y].id = token.id;
  // Any token serves where the draw fails: what comes of it is void.
  if (op.of.newest_tokens != nullptr && row.value >= 0) {
    op.of.newest_tokens[row.value] = max(token.id, 0);
  }
}

// A thread a draw.
__global__ void __launch_bounds__(kThreads) JoinGreedyDrawsKernel(JoinGreedyDraws op) {
  WaitForPrevious();
  LetNextBegin();
  const int draw = static_cast<int>(blockIdx.x * kThreads + threadIdx.x);
  if (draw >= op.draws) return;
  DrawCandidate best = op.candidates[draw];
  for (int shard = 1; shard < op.shards; ++shard) {
    const DrawCandidate other = op.candidates[shard * op.draws + draw];
    if (!isnan(best.logit) && (isnan(other.logit) || other.logit > best.logit)) best = other;
  }
  const auto id = static_cast<int32_t>(best.id);
  op.drawn[draw].largest = best.logit;
  op.drawn[draw].id = id;
  // Any token serves where the draw fails: what comes of it is void.
  if (const int32_t slot = op.rows[draw].value; slot >= 0) op.newest_tokens[slot] = max(id, 0);
}

// Blocks (chunk of a row, draw).
__global__ void __launch_bounds__(kThreads) SpreadRowsKernel(SpreadRows op) {
  WaitForPrevious();
  LetNextBegin();
  const float* const row =
      op.of.logits + int64_t{op.rows[blockIdx.y].row} * op.of.logits_stride - op.of.first_id;
  float* const out = op.out + int64_t{blockIdx.y} * op.out_stride;
  const int64_t begin = int64_t{blockIdx.x} * kChunk;
  const int64_t end = min(begin + kChunk, op.out_stride);
  for (int64_t t = begin + threadIdx.x; t < end; t += kThreads) {
    const bool own = t >= op.of.first_id && t < op.of.first_id + op.of.tokens;
    out[t] = own ? row[t] : 0.0f;
  }
}

unsigned ChunksOf(int64_t tokens) { return static_cast<unsigned>((tokens + kChunk - 1) / kChunk); }

}  // namespace

absl::Status Enqueue(const JoinGreedyDraws& op, Stream stream) {
  if (op.draws == 0) return absl::OkStatus();
  const auto blocks = static_cast<unsigned>((op.draws + kThreads - 1) / kThreads);
  return Launch(JoinGreedyDrawsKernel, {"JoinGreedyDraws", dim3(blocks), dim3(kThreads)}, stream,
                op);
}

absl::Status Enqueue(const SpreadRows& op, Stream stream) {
  if (op.draws == 0) return absl::OkStatus();
  const dim3 grid(ChunksOf(op.out_stride), static_cast<unsigned>(op.draws));
  return Launch(SpreadRowsKernel, {"SpreadRows", grid, dim3(kThreads)}, stream, op);
}

absl::Status Enqueue(const GreedyDraws& op, Stream stream) {
  if (op.of.tokens <= 0 || op.of.logits_stride % kPerLoad != 0 ||
      op.of.logits_stride < op.of.tokens) {
    return absl::InvalidArgumentError(
        absl::StrCat("GreedyDraws of ", op.of.tokens, " tokens: rows of multiples of 4"));
  }
  if (!Aligned16({op.of.logits})) {
    return absl::InvalidArgumentError("GreedyDraws: logits are 16-byte aligned");
  }
  if (op.draws == 0) return absl::OkStatus();
  const LaunchShape shape = {
      "GreedyDraws", dim3(ChunksOf(op.of.tokens), static_cast<unsigned>(op.draws)), dim3(kThreads)};
  return Launch(GreedyDrawsKernel, shape, stream, op);
}

const void* KernelOfGreedyDraws() { return reinterpret_cast<const void*>(GreedyDrawsKernel); }

}  // namespace skein::kernels::cuda
