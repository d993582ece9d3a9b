// The kernel that runs all operations of a step: one block a multiprocessor, all of them there at
// once, and no barrier between them. See block.cuh for what its warps do, exchange.cuh for how
// blocks meet.
//
// Others that keep a step in one kernel are Hazy Research's (Look Ma, No Bubbles, 2025) and MPK's
// (Cheng et al., 2025).
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "absl/status/status.h"
#include "kernels/cuda/kv_write.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/persistent/attention.cuh"
#include "kernels/cuda/persistent/block.cuh"
#include "kernels/cuda/persistent/exchange.cuh"
#include "kernels/cuda/persistent/fill_ring.cuh"
#include "kernels/cuda/persistent/product.cuh"
#include "kernels/cuda/persistent/step.h"

namespace skein::kernels::cuda {

// The batch's rows, and what they rotate by, into shared memory. By the warps that compute.
template <int kHeadDim>
__device__ void TakeBatch(const PersistentStep& step, BlockMemory& memory) {
  const int thread = static_cast<int>(threadIdx.x);
  if (thread < kMostStepRows) {
    const int row = thread;
    memory.positions[row] = row < step.rows ? step.positions[row] : -1;
    memory.outputs[row] = -1;
    memory.slots[row] = 0;
    memory.first_rows[row] = row;
    for (int s = 0; s < step.batch.sequences; ++s) {
      const int begin = step.batch.row_begin[s];
      if (row < begin || row >= step.batch.row_begin[s + 1]) continue;
      memory.slots[row] = step.batch.slots[s];
      memory.first_rows[row] = begin;
    }
    for (int i = 0; i < step.outputs; ++i) {
      if (step.output_rows[i] == row) memory.outputs[row] = i;
    }
  }
  constexpr int kPairs = kHeadDim / 2;
  for (int i = thread; i < step.rows * kPairs; i += kComputeThreads) {
    const auto position = static_cast<float>(step.positions[i / kPairs]);
    float sine, cosine;
    SineCosine(position * step.inverse_frequencies[i % kPairs], &sine, &cosine);
    memory.rotations[i] = make_float2(cosine, sine);
  }
  BatchIsTaken();
  ComputeBarrier();
}

// out = the tokens' rows of a table, or zeros where it does not have them; each thread of all
// blocks has some.
template <typename T>
__device__ void Embed(const PersistentStep& step, const StepOp& op) {
  char* const out = PlaceIn(step.arena, step.rows, op.out);
  const int quads = op.cols / 4;  // of a row, 8 bytes of the arena each
  const int all = step.rows * quads;
  // Whole warps, since four lanes have a tile together.
  for (int first = static_cast<int>(blockIdx.x) * kComputeThreads +
                   static_cast<int>(threadIdx.x) / kWarp * kWarp;
       first < all; first += static_cast<int>(gridDim.x) * kComputeThreads) {
    const int i = min(first + Lane(), all - 1);
    const int row = i / quads;
    const int tile = i % quads / 4;
    const int quad = i % 4;
    uint2 words = {};
    const int id = step.token_ids[row] - op.first_id;
    if (id >= 0 && id < op.count) {
      const auto* const at =
          static_cast<const T*>(op.memory) + int64_t{id} * op.stride + tile * kTileCols + 2 * quad;
      words.x = *reinterpret_cast<const uint32_t*>(at);
      words.y = *reinterpret_cast<const uint32_t*>(at + 8);
    }
    // A model may have such bits, which stand for NaN.
    if (words.x == kAbsent) words.x = 0x7fff7fff;
    if (words.y == kAbsent) words.y = 0x7fff7fff;
    if (first + Lane() < all) StoreWords(out + OperandPlace(tile, step.rows, row, quad), words);
    if (op.gain == nullptr) continue;
    const float2 a = FloatsOf<T>(words.x);
    const float2 b = FloatsOf<T>(words.y);
    const float* const gain = op.gain + tile * kTileCols + 2 * quad;
    const float squares = QuadSum(a.x * a.x + a.y * a.y + b.x * b.x + b.y * b.y);
    if (first + Lane() >= all) continue;
    StoreWords(PlaceIn(step.arena, step.rows, op.normed) + OperandPlace(tile, step.rows, row, quad),
               make_uint2(RoundedPair<T>(a.x * gain[0], a.y * gain[1]),
                          RoundedPair<T>(b.x * gain[8], b.y * gain[9])));
    if (quad == 0) {
      StoreWords(
          PlaceIn(step.arena, step.rows, op.squares) + SquarePlace(tile, op.cols / kTileCols, row),
          PresentWord(squares));
    }
  }
}

template <typename T, int kHeadDim, bool kInt8, int kRowTiles>
__device__ void Compute(const PersistentStep& step, BlockMemory& memory) {
  uint32_t next = LoadStepOp(step, 0);
  WaitForPrevious();
  TakeBatch<kHeadDim>(step, memory);
  RingUnit ring;
#pragma unroll 1
  for (int number = 0; number < step.op_count; ++number) {
    const StepOp& op = ShareOut(next, memory);
    next = LoadStepOp(step, number + 1);
    if (threadIdx.x == 0) *const_cast<volatile int32_t*>(&memory.at) = number;
    switch (static_cast<ScheduledOp::Kind>(op.kind)) {
      case ScheduledOp::Kind::kEmbed:
        Embed<T>(step, op);
        break;
      case ScheduledOp::Kind::kProduct:
        Product<T, kRowTiles>(step, memory, op, number).Run(ring);
        break;
      case ScheduledOp::Kind::kAttention:
        Attention<T, kHeadDim, kInt8>(step, memory, op, number).Run(ring);
        break;
    }
  }
}

template <typename T, int kHeadDim, bool kInt8, int kRowTiles>
__device__ void RunStep(const PersistentStep& step, BlockMemory& memory) {
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  if (threadIdx.x == 0) {
    memory.at = 0;
    for (int i = 0; i < kStepStages; ++i) {
      InitBarrier(&memory.full[i]);
      InitBarrier(&memory.empty[i], kComputeWarps);
      memory.asked_for[i] = 0xffffffff;
    }
    PublishBarriers();
  }
  __syncthreads();
  // Registers of a thread. A block has 168 for each of 384 threads, and no more: who asks for more
  // than the others gave back waits for ever.
  constexpr int kMore = 216;
  constexpr int kFewer = 72;
  static_assert(kComputeThreads * kMore + (kStepThreads - kComputeThreads) * kFewer <=
                kStepThreads * 168);
  if (warp < kComputeWarps) {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kMore));
    Compute<T, kHeadDim, kInt8, kRowTiles>(step, memory);
    return;
  }
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kFewer));
  if (warp == kComputeWarps) {
    using Work = Attention<T, kHeadDim, kInt8>;
    FillRing(step, memory)
        .template Run<Work::kStageBlocks, Work::kBlockBytes>(Product<T, kRowTiles>::kGroup);
  } else if (warp == kComputeWarps + 1) {
    WaitForPrevious();
    for (int i = static_cast<int>(blockIdx.x) * kWarp + Lane(); i < step.op_count;
         i += static_cast<int>(gridDim.x) * kWarp) {
      step.idle_given[i] = 0;
    }
    auto* const idle = reinterpret_cast<uint4*>(step.idle_arena);
    const int64_t stride = int64_t{gridDim.x} * kWarp;
    for (int64_t i = int64_t{blockIdx.x} * kWarp + Lane(); i < step.idle_bytes / 16; i += stride) {
      idle[i] = make_uint4(kAbsent, kAbsent, kAbsent, kAbsent);
    }
  } else {
    WaitForPrevious();
    uint32_t next = LoadStepOp(step, 0);
#pragma unroll 1
    for (int number = 0; number < step.op_count; ++number) {
      const StepOp& op = ShareOut(next, memory);
      next = LoadStepOp(step, number + 1);
      if (op.of_normed == 0 || op.first_tile == op.end_tile) continue;
      FindFactors(step, memory, op, number, warp - kComputeWarps - 2);
      FactorsAreFound(memory, number);
    }
  }
}

template <typename T, int kHeadDim, bool kInt8, int kRowTiles>
__global__ void __launch_bounds__(kStepThreads, 1)
    StepKernel(const __grid_constant__ PersistentStep step) {
  if constexpr (kHopper) {
    extern __shared__ __align__(1024) char shared[];
    RunStep<T, kHeadDim, kInt8, kRowTiles>(step, *reinterpret_cast<BlockMemory*>(shared));
  }
}

// Of activations, and a cache of 16 bits, of type T.
template <typename T>
absl::Status LaunchStepOf(const PersistentStep& step, int32_t blocks, Stream stream) {
  const LaunchShape shape = {"PersistentStep", dim3(static_cast<unsigned>(blocks)),
                             dim3(kStepThreads), sizeof(BlockMemory)};
  const auto launch = [&]<int kHeadDim, bool kInt8>() {
    return Launch(
        step.rows <= 8 ? StepKernel<T, kHeadDim, kInt8, 1> : StepKernel<T, kHeadDim, kInt8, 2>,
        shape, stream, step);
  };
  const bool int8 = step.kv.int8;
  switch (step.kv.head_dim) {
    case 64:
      return int8 ? launch.template operator()<64, true>()
                  : launch.template operator()<64, false>();
    case 96:
      return int8 ? launch.template operator()<96, true>()
                  : launch.template operator()<96, false>();
    default:
      return int8 ? launch.template operator()<128, true>()
                  : launch.template operator()<128, false>();
  }
}

}  // namespace skein::kernels::cuda
