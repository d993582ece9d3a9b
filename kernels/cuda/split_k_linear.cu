#include <array>

#include "absl/strings/str_cat.h"
#include "kernels/cuda/bulk_copy.cuh"
#include "kernels/cuda/cluster.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/linear_tile.cuh"
#include "kernels/cuda/load_kernels.h"
#include "kernels/cuda/split_k_linear.h"
#include "kernels/cuda/tensor_map.h"
#include "kernels/cuda/vectors.cuh"

namespace skein::kernels::cuda {
namespace {

constexpr std::array<int32_t, 3> kClusters = {8, 4, 2};

struct Work {
  CUtensorMap weight;
  CUtensorMap in;
  SplitKLinear op;
  int32_t steps;  // of k
};

// Steps [next, end) of k, which are a block's.
struct Steps {
  int next;
  int end;
  int weight_row;

  __device__ bool left() const { return next < end; }
  __device__ TilePlace Next() { return {next++ * kStepK, weight_row, 0}; }
};

// Where a thread's sums of 8 rows lie in the ring, when no product reads it any more.
template <typename F>
__device__ float4* SumsAt(char* ring, int eight) {
  return reinterpret_cast<float4*>(ring) + eight * kGroups * kGroupThreads + threadIdx.x;
}

// The blocks of a cluster share a tile: each multiplies a part of k, then writes some of the rows.
template <typename T, typename Out, typename F>
__global__ void __launch_bounds__(kTileThreads, 1) SplitKKernel(const __grid_constant__ Work work) {
  if constexpr (kHopper) {
    extern __shared__ char unaligned[];
    __shared__ TileBarriers<F> shared;
    constexpr int kEights = F::kRows / 8;
    char* const ring = RingOf(unaligned);
    const int warp = static_cast<int>(threadIdx.x) / kWarp;
    const int blocks = work.op.blocks;
    const int rank = ClusterRank();
    const int weight_row = static_cast<int>(blockIdx.x) / blocks * kTileRows;
    const Steps steps = {work.steps * rank / blocks, work.steps * (rank + 1) / blocks, weight_row};
    if (threadIdx.x == 0) {
      PrefetchMap(work.weight);
      PrefetchMap(work.in);
      shared.Init();
    }
    __syncthreads();
    TileMultiplier<T, F> multiplier = {ring, shared, warp / kGroupWarps};
    const bool multiplies = warp < kGroups * kGroupWarps;
    if (!multiplies) {
      if (Lane() == 0) {
        TileFetcher<F, Steps>{work.weight, work.in, ring, shared, EvictFirst()}.Run(steps);
      }
      __syncwarp();
    } else {
      WaitForPrevious();
      LetNextBegin();
      multiplier.template Multiply</*kShort=*/false>((steps.end - steps.next) * kStepK);
    }
    __syncthreads();
    if (multiplies) {
#pragma unroll
      for (int i = 0; i < kEights; ++i) {
        const float* const d = multiplier.sums + 4 * i;
        *SumsAt<F>(ring, i) = {d[0], d[1], d[2], d[3]};
      }
    }
    SyncCluster();
    if (multiplies) {
      for (int i = rank; i < kEights; i += blocks) {
        float4 parts[kClusters.front()];
#pragma unroll
        for (int b = 0; b < kClusters.front(); ++b) {
          if (b < blocks) parts[b] = LoadOfBlock(SumsAt<F>(ring, i), b);
        }
        float4 sum = parts[0];
#pragma unroll
        for (int b = 1; b < kClusters.front(); ++b) {
          if (b >= blocks) break;
          sum.x += parts[b].x, sum.y += parts[b].y, sum.z += parts[b].z, sum.w += parts[b].w;
        }
        WriteEightRows<T, Out>(TileOut::Of(work.op), {sum.x, sum.y, sum.z, sum.w}, 8 * i,
                               weight_row + multiplier.group * kGroupRows);
      }
    }
    SyncCluster();  // nobody's memory goes while another block reads it
  }
}

template <typename T, typename Out, typename F>
absl::Status Start(const SplitKLinear& op, Stream stream) {
  Work work = {.op = op};
  SKEIN_ASSIGN_OR_RETURN(work.weight,
                         MapOf(op.dtype, op.weight, op.n, op.k, op.weight_stride, kTileRows));
  SKEIN_ASSIGN_OR_RETURN(work.in, MapOf(op.dtype, op.in, op.rows, op.k, op.in_stride, F::kRows));
  work.steps = static_cast<int32_t>((op.k + kStepK - 1) / kStepK);
  // Each block has a step at least.
  while (work.op.blocks > work.steps) work.op.blocks /= 2;
  const auto blocks = static_cast<unsigned>(work.op.blocks);
  const auto tiles = static_cast<unsigned>((op.n + kTileRows - 1) / kTileRows);
  return Launch(SplitKKernel<T, Out, F>,
                {"SplitKLinear", dim3(tiles * blocks), dim3(kTileThreads), F::kLaunchBytes, blocks},
                stream, work);
}

template <typename T, typename Out>
absl::Status StartForRows(const SplitKLinear& op, Stream stream) {
  if (op.rows <= 16) return Start<T, Out, Form<16>>(op, stream);
  if (op.rows <= 32) return Start<T, Out, Form<32>>(op, stream);
  return Start<T, Out, Form<64>>(op, stream);
}

// Clusters of each size that run at once.
std::array<int, kClusters.size()> ClustersAtOnce() {
  std::array<int, kClusters.size()> at_once = {};
  if (!HopperForms()) return at_once;
  using F = Form<64>;
  const auto kernel = SplitKKernel<__nv_bfloat16, float, F>;
  const auto bytes = static_cast<int>(F::kLaunchBytes);
  if (cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes) !=
      cudaSuccess) {
    return at_once;
  }
  for (size_t i = 0; i < kClusters.size(); ++i) {
    const auto blocks = static_cast<unsigned>(kClusters[i]);
    cudaLaunchAttribute cluster = ClusterOf(blocks);
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(blocks);
    config.blockDim = dim3(kTileThreads);
    config.dynamicSmemBytes = F::kLaunchBytes;
    config.attrs = &cluster;
    config.numAttrs = 1;
    if (cudaOccupancyMaxActiveClusters(&at_once[i], kernel, &config) != cudaSuccess) at_once[i] = 0;
  }
  return at_once;
}

}  // namespace

int32_t SplitKBlocks(int64_t n) {
  static const std::array<int, kClusters.size()> at_once = ClustersAtOnce();
  const int64_t tiles = (n + kTileRows - 1) / kTileRows;
  for (size_t i = 0; i < kClusters.size(); ++i) {
    if (tiles <= at_once[i]) return kClusters[i];
  }
  return 1;
}

absl::Status Enqueue(const SplitKLinear& op, Stream stream) {
  if (op.rows < 0 || op.rows > kSplitKRows || op.n <= 0 || op.k <= 0 ||
      (op.n | op.k | op.in_stride | op.weight_stride | op.out_stride) % kVector != 0) {
    return absl::InvalidArgumentError(absl::StrCat("SplitKLinear of ", op.rows, " rows, ", op.n,
                                                   " by ", op.k, ": to ", kSplitKRows,
                                                   " rows; sizes and strides are multiples of 8"));
  }
  if (op.swiglu && (op.n % 16 != 0 || op.out_dtype != op.dtype)) {
    return absl::InvalidArgumentError(
        "SplitKLinear with SwiGlu: a multiple of 16 weight rows, no F32");
  }
  if (op.blocks < 1 || op.blocks > kClusters.front() || (op.blocks & (op.blocks - 1)) != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("SplitKLinear by ", op.blocks, " blocks: 1, 2, 4 or 8"));
  }
  if (!Aligned16({op.in, op.weight, op.out})) {
    return absl::InvalidArgumentError("SplitKLinear: operands are 16-byte aligned");
  }
  if (op.rows == 0) return absl::OkStatus();
  if (op.out == op.in) {
    return absl::InvalidArgumentError("SplitKLinear in place: blocks still read what others write");
  }
  SKEIN_RETURN_IF_ERROR(NeedHopper("SplitKLinear"));
  return With16BitType(op.dtype, [&]<typename T>(TypeTag<T>) {
    return WithFloatOr<T>(op.out_dtype, op.dtype, [&]<typename Out>(TypeTag<Out>) {
      return StartForRows<T, Out>(op, stream);
    });
  });
}

const void* KernelOfSplitKLinear() {
  return reinterpret_cast<const void*>(SplitKKernel<__nv_bfloat16, float, Form<16>>);
}

}  // namespace skein::kernels::cuda
