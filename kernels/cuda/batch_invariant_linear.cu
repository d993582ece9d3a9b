#include <algorithm>

#include "absl/strings/str_cat.h"
#include "kernels/cuda/batch_invariant_linear.h"
#include "kernels/cuda/bulk_copy.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/linear_tile.cuh"
#include "kernels/cuda/load_kernels.h"
#include "kernels/cuda/tensor_map.h"
#include "kernels/cuda/vectors.cuh"
#include "kernels/cuda/wgmma.cuh"

namespace skein::kernels::cuda {
namespace {

constexpr int kMaxBlocks = 8;

struct Work {
  CUtensorMap weight;
  CUtensorMap in;
  BatchInvariantLinear op;
};

// Where steps of k begin, block by block: the last one of a block may be a short one.
class Steps {
 public:
  __device__ Steps(const BatchInvariantLinear& op, int weight_row, int in_row)
      : block_cols_(static_cast<int>(op.k) / op.blocks),
        k_(static_cast<int>(op.k)),
        block_end_(block_cols_),
        place_{0, weight_row, in_row} {}
  __device__ bool left() const { return place_.column < k_; }
  __device__ TilePlace Next() {
    const TilePlace place = place_;
    place_.column = min(place_.column + kStepK, block_end_);
    if (place_.column == block_end_) block_end_ += block_cols_;
    return place;
  }

 private:
  int block_cols_;
  int k_;
  int block_end_;
  TilePlace place_;
};

// A thread of a multiplying group.
template <typename T, typename F>
struct Multiplier : TileMultiplier<T, F> {
  using TileMultiplier<T, F>::kSums;
  using TileMultiplier<T, F>::sums;

  // sums = left + sums.
  __device__ void Join(const float (&left)[kSums]) {
#pragma unroll
    for (int i = 0; i < kSums; ++i) sums[i] = left[i] + sums[i];
  }
  __device__ void Keep(float (&left)[kSums]) const {
#pragma unroll
    for (int i = 0; i < kSums; ++i) left[i] = sums[i];
  }

  // The blocks' sums as a binary tree: of the subtrees that wait for their right neighbour one
  // each of 1, 2 and 4 blocks.
  template <bool kShort>
  __device__ void MultiplyBlocks(int blocks, int columns) {
    float one[kSums], two[kSums], four[kSums];
    for (int block = 0; block < blocks; ++block) {
      this->template Multiply<kShort>(columns);
      if ((block & 1) == 0) {
        Keep(one);
        continue;
      }
      Join(one);
      if ((block & 2) == 0) {
        Keep(two);
        continue;
      }
      Join(two);
      if ((block & 4) == 0) {
        Keep(four);
        continue;
      }
      Join(four);
    }
  }
};

// Blocks (tiles of rows of `in`, tiles of weight rows): those that share weights run together.
// kShort: a block's last step is a short one.
template <typename T, typename Out, typename F, bool kTree, bool kShort>
__global__ void __launch_bounds__(kTileThreads, 1)
    BatchInvariantKernel(const __grid_constant__ Work work) {
  if constexpr (kHopper) {
    extern __shared__ char unaligned[];
    __shared__ TileBarriers<F> shared;
    char* const ring = RingOf(unaligned);
    const int warp = static_cast<int>(threadIdx.x) / kWarp;
    const int in_row = static_cast<int>(blockIdx.x) * F::kRows;
    const int weight_row = static_cast<int>(blockIdx.y) * kTileRows;
    if (threadIdx.x == 0) {
      PrefetchMap(work.weight);
      PrefetchMap(work.in);
      shared.Init();
    }
    __syncthreads();
    if (warp == kGroups * kGroupWarps) {
      if (Lane() == 0) {
        TileFetcher<F, Steps>{work.weight, work.in, ring, shared, EvictLast()}.Run(
            Steps(work.op, weight_row, in_row));
      }
      __syncwarp();
    } else {
      WaitForPrevious();
      LetNextBegin();
      const BatchInvariantLinear& op = work.op;
      Multiplier<T, F> multiplier = {{ring, shared, warp / kGroupWarps}};
      if constexpr (kTree) {
        multiplier.template MultiplyBlocks<kShort>(op.blocks, static_cast<int>(op.k) / op.blocks);
      } else {
        multiplier.template Multiply<kShort>(static_cast<int>(op.k));
      }
      WriteSums<Out>(TileOut::Of(op), multiplier, in_row, weight_row);
    }
  }
}

template <typename T, typename Out, typename F, bool kTree, bool kShort>
absl::Status Start(const BatchInvariantLinear& op, Stream stream) {
  Work work = {.op = op};
  SKEIN_ASSIGN_OR_RETURN(work.weight,
                         MapOf(op.dtype, op.weight, op.n, op.k, op.weight_stride, kTileRows));
  SKEIN_ASSIGN_OR_RETURN(work.in, MapOf(op.dtype, op.in, op.rows, op.k, op.in_stride, F::kRows));
  const dim3 grid(static_cast<unsigned>((op.rows + F::kRows - 1) / F::kRows),
                  static_cast<unsigned>((op.n + kTileRows - 1) / kTileRows));
  return Launch(BatchInvariantKernel<T, Out, F, kTree, kShort>,
                {"BatchInvariantLinear", grid, dim3(kTileThreads), F::kLaunchBytes}, stream, work);
}

// However many rows a tile has, a row's sums are added by the same instructions in the same order.
// The subtrees that wait leave registers for tiles of 64 rows.
template <typename T, typename Out, bool kShort>
absl::Status StartForRows(const BatchInvariantLinear& op, Stream stream) {
  if (op.blocks > 1) {
    if (op.rows <= 16) return Start<T, Out, Form<16>, true, kShort>(op, stream);
    return Start<T, Out, Form<64>, true, kShort>(op, stream);
  }
  if (op.rows <= 16) return Start<T, Out, Form<16>, false, kShort>(op, stream);
  if (op.rows <= 64) return Start<T, Out, Form<64>, false, kShort>(op, stream);
  return Start<T, Out, Form<256>, false, kShort>(op, stream);
}

// Without short steps the compiler sees that products follow each other, and lets them.
template <typename T, typename Out>
absl::Status StartForColumns(const BatchInvariantLinear& op, Stream stream) {
  return op.k / op.blocks % kStepK == 0 ? StartForRows<T, Out, false>(op, stream)
                                        : StartForRows<T, Out, true>(op, stream);
}

}  // namespace

absl::Status Enqueue(const BatchInvariantLinear& op, Stream stream) {
  if (op.rows < 0 || op.n <= 0 || op.k <= 0 ||
      (op.n | op.k | op.in_stride | op.weight_stride | op.out_stride) % kVector != 0) {
    return absl::InvalidArgumentError(absl::StrCat("BatchInvariantLinear of ", op.rows, " rows, ",
                                                   op.n, " by ", op.k,
                                                   ": sizes and strides are multiples of 8"));
  }
  if (op.blocks < 1 || op.blocks > kMaxBlocks || (op.blocks & (op.blocks - 1)) != 0 ||
      (op.blocks > 1 && op.k % (int64_t{16} * op.blocks) != 0)) {
    return absl::UnimplementedError(
        absl::StrCat("BatchInvariantLinear of ", op.k, " columns in ", op.blocks,
                     " blocks: 1, 2, 4 or 8 blocks of a multiple of 16 columns"));
  }
  if (op.swiglu && (op.n % 16 != 0 || op.out_dtype != op.dtype)) {
    return absl::InvalidArgumentError(
        "BatchInvariantLinear with SwiGlu: a multiple of 16 weight rows, no F32");
  }
  if (!Aligned16({op.in, op.weight, op.out})) {
    return absl::InvalidArgumentError("BatchInvariantLinear: operands are 16-byte aligned");
  }
  if (op.rows == 0) return absl::OkStatus();
  if (op.out == op.in) {
    return absl::InvalidArgumentError(
        "BatchInvariantLinear in place: blocks still read what others write");
  }
  SKEIN_RETURN_IF_ERROR(NeedHopper("BatchInvariantLinear"));
  return With16BitType(op.dtype, [&]<typename T>(TypeTag<T>) {
    return WithFloatOr<T>(op.out_dtype, op.dtype, [&]<typename Out>(TypeTag<Out>) {
      return StartForColumns<T, Out>(op, stream);
    });
  });
}

const void* KernelOfBatchInvariantLinear() {
  return reinterpret_cast<const void*>(
      BatchInvariantKernel<__nv_bfloat16, float, Form<16>, false, false>);
}

}  // namespace skein::kernels::cuda
