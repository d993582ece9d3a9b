#include <algorithm>
#include <array>

#include "absl/strings/str_cat.h"
#include "kernels/cuda/bulk_copy.cuh"
#include "kernels/cuda/cluster.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/linear_tile.cuh"
#include "kernels/cuda/load_kernels.h"
#include "kernels/cuda/tensor_map.h"
#include "kernels/cuda/vectors.cuh"
#include "kernels/cuda/wide_tile_linear.h"

namespace skein::kernels::cuda {
namespace {

constexpr int kInRows = static_cast<int>(kWideTileInRows);
static_assert(kInRows == kGroupRows);

// `in` is the product's A, of 64 rows, and weights are its B: a group has half of the tile's rows.
// Lane l of warp w of a group has D's rows 16 * w + l / 4 and 8 more of `in`, weight rows
// 8 * j + l % 4 * 2 and the next.
template <int kTile>
struct WideForm : Ring<kTile, kInRows> {
  static constexpr int kRows = kTile;
  static constexpr int kOfGroup = kTile / kGroups;  // weight rows
  static constexpr int kSums = kOfGroup / 2;
  // Sixteen weight rows, of which 8 may be gates and 8 their ups.
  static constexpr int kSixteens = kOfGroup / 16;
  __device__ static constexpr int AByte(int) { return WideForm::kWeightBytes; }
  __device__ static constexpr int BByte(int group) { return group * kOfGroup * kLineBytes; }
};

struct Work {
  CUtensorMap weight;
  CUtensorMap in;
  WideTileLinear op;
  int32_t steps;  // of k
};

// Steps [first, end) of k, tile by tile.
struct Steps {
  int first;
  int end;
  int weight_row;
  int stride;  // weight rows from a block's tile to its next
  int n;
  int next = first;

  __device__ int columns() const { return (end - first) * kStepK; }
  __device__ bool left() const { return weight_row < n; }
  __device__ TilePlace Next() {
    const TilePlace place = {next * kStepK, weight_row, 0};
    if (++next == end) next = first, weight_row += stride;
    return place;
  }
};

// A block of a cluster has its part of k of one tile; one alone all of k, of every so many tiles.
template <typename F>
__device__ Steps StepsOf(const Work& work) {
  const int blocks = work.op.tile.blocks;
  const int rank = blocks > 1 ? ClusterRank() : 0;
  return {.first = work.steps * rank / blocks,
          .end = work.steps * (rank + 1) / blocks,
          .weight_row = static_cast<int>(blockIdx.x) / blocks * F::kRows,
          .stride = static_cast<int>(gridDim.x) / blocks * F::kRows,
          .n = static_cast<int>(work.op.n)};
}

// Writes a thread's sums of two blocks of 8 weight rows, from `n` on.
template <typename T, typename Out>
__device__ void WriteSixteen(const TileOut& to, const float4 (&d)[2], int64_t n) {
  const int column = Lane() % 4 * 2;
  const auto put = [&](int64_t row, int64_t at, int64_t columns, float first, float second) {
    if (row >= to.rows || at >= columns) return;
    Out* const out = static_cast<Out*>(to.out) + row * to.stride + at;
    if constexpr (sizeof(Out) == 4) {
      *reinterpret_cast<float2*>(out) = make_float2(first, second);
    } else {
      *reinterpret_cast<uint32_t*>(out) = RoundedPair<T>(first, second);
    }
  };
  const int64_t row = static_cast<int>(threadIdx.x) % kGroupThreads / kWarp * 16 + Lane() / 4;
  if (to.swiglu) {
    const int64_t at = n / 2 + column;
    put(row, at, to.n / 2, Silu(d[0].x) * d[1].x, Silu(d[0].y) * d[1].y);
    put(row + 8, at, to.n / 2, Silu(d[0].z) * d[1].z, Silu(d[0].w) * d[1].w);
    return;
  }
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int64_t at = n + 8 * i + column;
    put(row, at, to.n, d[i].x, d[i].y);
    put(row + 8, at, to.n, d[i].z, d[i].w);
  }
}

template <typename T, typename F>
__device__ void SumsOf(const TileMultiplier<T, F>& of, int sixteen, float4 (&d)[2]) {
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const float* const four = of.sums + 8 * sixteen + 4 * i;
    d[i] = {four[0], four[1], four[2], four[3]};
  }
}

// Where a thread's sums of 8 weight rows lie in the ring, when no product reads it any more.
__device__ inline float4* SumsAt(char* ring, int eight) {
  return reinterpret_cast<float4*>(ring) + eight * kGroups * kGroupThreads + threadIdx.x;
}

// By the multiplying threads of a cluster: each block sums up and writes some of its tile's rows.
template <typename T, typename Out, typename F>
__device__ void WriteSumsOfCluster(const Work& work, char* ring, int group, int weight_row) {
  const int blocks = work.op.tile.blocks;
  for (int i = ClusterRank(); i < F::kSixteens; i += blocks) {
    float4 parts[2][kWideTileClusters.front()];
#pragma unroll
    for (int b = 0; b < kWideTileClusters.front(); ++b) {
      if (b >= blocks) break;
      for (int half = 0; half < 2; ++half) {
        parts[half][b] = LoadOfBlock(SumsAt(ring, 2 * i + half), b);
      }
    }
    float4 sums[2] = {parts[0][0], parts[1][0]};
#pragma unroll
    for (int b = 1; b < kWideTileClusters.front(); ++b) {
      if (b >= blocks) break;
      for (int half = 0; half < 2; ++half) {
        sums[half].x += parts[half][b].x, sums[half].y += parts[half][b].y;
        sums[half].z += parts[half][b].z, sums[half].w += parts[half][b].w;
      }
    }
    WriteSixteen<T, Out>(TileOut::Of(work.op), sums, weight_row + group * F::kOfGroup + 16 * i);
  }
}

template <typename T, typename Out, typename F>
__global__ void __launch_bounds__(kTileThreads, 1)
    WideTileKernel(const __grid_constant__ Work work) {
  if constexpr (kHopper) {
    extern __shared__ char unaligned[];
    __shared__ TileBarriers<F> shared;
    char* const ring = RingOf(unaligned);
    const int warp = static_cast<int>(threadIdx.x) / kWarp;
    const Steps steps = StepsOf<F>(work);
    if (threadIdx.x == 0) {
      PrefetchMap(work.weight);
      PrefetchMap(work.in);
      shared.Init();
    }
    __syncthreads();
    TileMultiplier<T, F> multiplier = {ring, shared, warp / kGroupWarps};
    const bool multiplies = warp < kGroups * kGroupWarps;
    const bool alone = work.op.tile.blocks == 1;
    if (!multiplies) {
      if (Lane() == 0) {
        TileFetcher<F, Steps>{work.weight, work.in, ring, shared, EvictFirst()}.Run(steps);
      }
      __syncwarp();
    } else {
      WaitForPrevious();
      LetNextBegin();
      const int last = alone ? steps.n : steps.weight_row + 1;
      for (int row = steps.weight_row; row < last; row += steps.stride) {
        multiplier.template Multiply</*kShort=*/false>(steps.columns());
        float4 sums[2];
#pragma unroll
        for (int i = 0; i < F::kSixteens; ++i) {
          SumsOf(multiplier, i, sums);
          if (alone) {
            WriteSixteen<T, Out>(TileOut::Of(work.op), sums,
                                 row + multiplier.group * F::kOfGroup + 16 * i);
          }
        }
      }
    }
    if (alone) return;
    __syncthreads();  // no product reads the ring any more
    if (multiplies) {
      float4 sums[2];
#pragma unroll
      for (int i = 0; i < F::kSixteens; ++i) {
        SumsOf(multiplier, i, sums);
        *SumsAt(ring, 2 * i) = sums[0];
        *SumsAt(ring, 2 * i + 1) = sums[1];
      }
    }
    SyncCluster();
    if (multiplies) {
      WriteSumsOfCluster<T, Out, F>(work, ring, multiplier.group, steps.weight_row);
    }
    SyncCluster();  // nobody's memory goes while another block reads it
  }
}

template <typename T, typename Out, typename F>
absl::Status Start(const WideTileLinear& op, Stream stream) {
  Work work = {.op = op};
  SKEIN_ASSIGN_OR_RETURN(work.weight,
                         MapOf(op.dtype, op.weight, op.n, op.k, op.weight_stride, F::kRows));
  SKEIN_ASSIGN_OR_RETURN(work.in, MapOf(op.dtype, op.in, op.rows, op.k, op.in_stride, kInRows));
  work.steps = static_cast<int32_t>((op.k + kStepK - 1) / kStepK);
  // Each block has a step at least.
  int32_t& blocks = work.op.tile.blocks;
  while (blocks > work.steps) blocks /= 2;
  const int64_t tiles = (op.n + F::kRows - 1) / F::kRows;
  const int64_t grid = blocks > 1 ? tiles * blocks : std::min<int64_t>(tiles, op.multiprocessors);
  return Launch(WideTileKernel<T, Out, F>,
                {"WideTileLinear", dim3(static_cast<unsigned>(grid)), dim3(kTileThreads),
                 F::kLaunchBytes, static_cast<unsigned>(blocks)},
                stream, work);
}

template <typename T, typename Out>
absl::Status StartForTile(const WideTileLinear& op, Stream stream) {
  switch (op.tile.rows) {
    case 128:
      return Start<T, Out, WideForm<128>>(op, stream);
    case 192:
      return Start<T, Out, WideForm<192>>(op, stream);
    default:
      return Start<T, Out, WideForm<224>>(op, stream);
  }
}

// Clusters of each size that run at once.
std::array<int32_t, kWideTileClusters.size()> ClustersAtOnce() {
  std::array<int32_t, kWideTileClusters.size()> at_once = {};
  if (!HopperForms()) return at_once;
  using F = WideForm<192>;  // whose ring takes the most memory
  static_assert(F::kLaunchBytes == kSharedBytes + kSharedAlignment);
  const auto kernel = WideTileKernel<__nv_bfloat16, float, F>;
  const auto bytes = static_cast<int>(F::kLaunchBytes);
  if (cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes) !=
      cudaSuccess) {
    return at_once;
  }
  for (size_t i = 0; i < kWideTileClusters.size(); ++i) {
    const auto blocks = static_cast<unsigned>(kWideTileClusters[i]);
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

WideTile WideTileOf(int64_t n, int64_t k, int32_t multiprocessors) {
  static const auto at_once = ClustersAtOnce();
  return ChooseWideTile(n, k, multiprocessors, at_once);
}

absl::Status Enqueue(const WideTileLinear& op, Stream stream) {
  if (op.rows < 0 || op.rows > kWideTileInRows || op.n <= 0 || op.k <= 0 ||
      (op.n | op.k | op.in_stride | op.weight_stride | op.out_stride) % kVector != 0) {
    return absl::InvalidArgumentError(absl::StrCat("WideTileLinear of ", op.rows, " rows, ", op.n,
                                                   " by ", op.k, ": to ", kWideTileInRows,
                                                   " rows; sizes and strides are multiples of 8"));
  }
  if (op.swiglu && (op.n % 16 != 0 || op.out_dtype != op.dtype)) {
    return absl::InvalidArgumentError(
        "WideTileLinear with SwiGlu: a multiple of 16 weight rows, no F32");
  }
  const auto has = [](const auto& list, int32_t value) {
    return std::find(list.begin(), list.end(), value) != list.end();
  };
  if (!has(kWideTileRows, op.tile.rows) ||
      (op.tile.blocks != 1 && !has(kWideTileClusters, op.tile.blocks)) || op.multiprocessors <= 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("WideTileLinear by ", op.tile.blocks, " blocks for ", op.tile.rows,
                     " weight rows: a tile of WideTileOf(), and the device's multiprocessors"));
  }
  if (!Aligned16({op.in, op.weight, op.out})) {
    return absl::InvalidArgumentError("WideTileLinear: operands are 16-byte aligned");
  }
  if (op.rows == 0) return absl::OkStatus();
  if (op.out == op.in) {
    return absl::InvalidArgumentError(
        "WideTileLinear in place: blocks still read what others write");
  }
  SKEIN_RETURN_IF_ERROR(NeedHopper("WideTileLinear"));
  return With16BitType(op.dtype, [&]<typename T>(TypeTag<T>) {
    return WithFloatOr<T>(op.out_dtype, op.dtype, [&]<typename Out>(TypeTag<Out>) {
      return StartForTile<T, Out>(op, stream);
    });
  });
}

const void* KernelOfWideTileLinear() {
  return reinterpret_cast<const void*>(WideTileKernel<__nv_bfloat16, float, WideForm<128>>);
}

}  // namespace skein::kernels::cuda
