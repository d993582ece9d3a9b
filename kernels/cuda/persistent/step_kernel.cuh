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
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "kernels/cuda/cuda_status.h"
#include "kernels/cuda/kv_write.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/persistent/attention.cuh"
#include "kernels/cuda/persistent/block.cuh"
#include "kernels/cuda/persistent/exchange.cuh"
#include "kernels/cuda/persistent/fill_ring.cuh"
#include "kernels/cuda/persistent/product.cuh"
#include "kernels/cuda/persistent/residual.cuh"
#include "kernels/cuda/persistent/shards.cuh"
#include "kernels/cuda/persistent/step.h"

namespace skein::kernels::cuda {

// The batch's rows, and what they rotate by, into shared memory. By the warps that compute.
template <int kHeadDim>
__device__ void TakeBatch(const PersistentStep& step, BlockMemory& memory) {
  const int thread = static_cast<int>(threadIdx.x);
  if (thread == 0 && step.sums > 0) memory.first_sum = LoadWord(&step.peers.turn->number) + 1;
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
        Embed<T>(step, memory, op);
        break;
      case ScheduledOp::Kind::kTakeIn:
        TakeIn<T>(step, op);
        break;
      case ScheduledOp::Kind::kProduct:
        Product<T, kRowTiles>(step, memory, op, number).Run(ring);
        break;
      case ScheduledOp::Kind::kAttention:
        Attention<T, kHeadDim, kInt8>(step, memory, op, number).Run(ring);
        break;
      case ScheduledOp::Kind::kSum:
        SumOverShards<T>(step, memory, op, number);
        break;
    }
  }
  if (step.sums > 0 && threadIdx.x == 0) CountSums(step, memory.first_sum);
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
    FillRing(step, memory).template Run<Work::kStageBlocks, Work::kBlockBytes, kRowTiles>();
  } else if (warp == kComputeWarps + 1) {
    WaitForPrevious();
    for (int i = static_cast<int>(blockIdx.x) * kWarp + Lane(); i < step.given_count;
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

// Calls f(kernel) for steps of activations, and a cache of 16 bits, of type T. row_tiles: as
// Product has it.
template <typename T, typename F>
absl::Status WithStepKernel(const PersistentStep& step, int row_tiles, const F& f) {
  const auto with = [&]<int kHeadDim, bool kInt8>() {
    return f(row_tiles == 1 ? StepKernel<T, kHeadDim, kInt8, 1>
                            : StepKernel<T, kHeadDim, kInt8, 2>);
  };
  const bool int8 = step.kv.int8;
  switch (step.kv.head_dim) {
    case 64:
      return int8 ? with.template operator()<64, true>() : with.template operator()<64, false>();
    case 96:
      return int8 ? with.template operator()<96, true>() : with.template operator()<96, false>();
    default:
      return int8 ? with.template operator()<128, true>() : with.template operator()<128, false>();
  }
}

template <typename T>
absl::Status LaunchStepOf(const PersistentStep& step, int32_t blocks, Stream stream) {
  const LaunchShape shape = {"PersistentStep", dim3(static_cast<unsigned>(blocks)),
                             dim3(kStepThreads), sizeof(BlockMemory)};
  return WithStepKernel<T>(step, step.rows <= 8 ? 1 : 2,
                           [&](auto* kernel) { return Launch(kernel, shape, stream, step); });
}

template <typename T>
absl::Status CheckStepFits(const PersistentStep& step, int32_t blocks) {
  const auto check = [blocks](auto* kernel) -> absl::Status {
    int each = 0;
    const int multiprocessors = [] {
      int device = 0, count = 0;
      cudaGetDevice(&device);
      cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device);
      return count;
    }();
    SKEIN_CUDA_RETURN_IF_ERROR(cudaFuncSetAttribute(
        kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, sizeof(BlockMemory)));
    SKEIN_CUDA_RETURN_IF_ERROR(cudaOccupancyMaxActiveBlocksPerMultiprocessor(
        &each, kernel, kStepThreads, sizeof(BlockMemory)));
    if (each * multiprocessors >= blocks) return absl::OkStatus();
    return absl::UnimplementedError(absl::StrCat("the persistent step needs ", blocks,
                                                 " blocks at once, and this process has room for ",
                                                 each * multiprocessors));
  };
  for (const int row_tiles : {1, 2}) {
    SKEIN_RETURN_IF_ERROR(WithStepKernel<T>(step, row_tiles, check));
  }
  return absl::OkStatus();
}

}  // namespace skein::kernels::cuda
