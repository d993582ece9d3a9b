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
  __device__ explicit Steps(const BatchInvariantLinear& op)
      : block_cols_(static_cast<int>(op.k) / op.blocks), k_(static_cast<int>(op.k)) {
    block_end_ = block_cols_;
  }
  __device__ bool left() const { return next_ < k_; }
  __device__ int Next() {
    const int step = next_;
    next_ = min(step + kStepK, block_end_);
    if (next_ == block_end_) block_end_ += block_cols_;
    return step;
  }

 private:
  int block_cols_;
  int k_;
  int block_end_;
  int next_ = 0;
};

// The fetching thread. Weights depend on no kernel before: as many as the ring takes come first.
template <typename F>
struct Fetcher {
  const Work& work;
  char* ring;
  TileBarriers<F>& shared;
  int weight_row;
  int in_row;
  uint64_t keep = EvictLast();

  __device__ void Weight(int stage, int column) {
    ExpectBytes(&shared.full[stage], F::kStageBytes);
    TensorCopy(ring + stage * F::kStageBytes, work.weight, column, weight_row, &shared.full[stage],
               keep);
  }
  __device__ void In(int stage, int column) {
    TensorCopy(ring + stage * F::kStageBytes + kWeightBytes, work.in, column, in_row,
               &shared.full[stage], keep);
  }

  __device__ void Run() {
    Steps weights(work.op);
    Steps ins(work.op);
    int ahead = 0;
    while (ahead < F::kStages && weights.left()) Weight(ahead++, weights.Next());
    WaitForPrevious();
    LetNextBegin();
    RingPlace<F::kStages> place;
    for (int i = 0; i < ahead; ++i) {
      In(i, ins.Next());
      place.Next();
    }
    while (weights.left()) {
      WaitFor(&shared.empty[place.stage], place.parity ^ 1);
      const int column = weights.Next();
      Weight(place.stage, column);
      In(place.stage, column);
      place.Next();
    }
  }
};

// A thread of a multiplying group.
template <typename T, typename F>
struct Multiplier {
  static constexpr int kSums = F::kRows / 2;

  const char* ring;
  TileBarriers<F>& shared;
  int group;
  RingPlace<F::kStages> place;
  float sums[kSums];

  __device__ void Release(int stage) {
    if (Lane() == 0) Arrive(&shared.empty[stage]);
  }

  // sums = of so many columns.
  __device__ void Multiply(int columns) {
    int before = -1;
    Pin(sums);
    for (int done = 0; done < columns; done += kStepK) {
      WaitFor(&shared.full[place.stage], place.parity);
      BeginProducts();
      MultiplyStage<T, F>(ring, place.stage, group, columns - done, /*fresh=*/done == 0, sums);
      CommitProducts();
      if (before >= 0) {
        WaitForProducts<1>();
        Release(before);
      }
      before = place.stage;
      place.Next();
    }
    WaitForProducts<0>();
    Pin(sums);
    Release(before);
  }

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
  __device__ void MultiplyBlocks(int blocks, int columns) {
    float one[kSums], two[kSums], four[kSums];
    for (int block = 0; block < blocks; ++block) {
      Multiply(columns);
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
template <typename T, typename Out, typename F, bool kTree>
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
      if (Lane() == 0) Fetcher<F>{work, ring, shared, weight_row, in_row}.Run();
      __syncwarp();
    } else {
      WaitForPrevious();
      LetNextBegin();
      const BatchInvariantLinear& op = work.op;
      Multiplier<T, F> multiplier = {ring, shared, warp / kGroupWarps};
      if constexpr (kTree) {
        multiplier.MultiplyBlocks(op.blocks, static_cast<int>(op.k) / op.blocks);
      } else {
        multiplier.Multiply(static_cast<int>(op.k));
      }
      WriteSums<T, Out, F::kRows>(TileOut::Of(op), multiplier.sums, in_row,
                                  weight_row + multiplier.group * kGroupRows);
    }
  }
}

template <typename T, typename Out, typename F, bool kTree>
absl::Status Start(const BatchInvariantLinear& op, Stream stream) {
  Work work = {.op = op};
  SKEIN_ASSIGN_OR_RETURN(work.weight,
                         MapOf(op.dtype, op.weight, op.n, op.k, op.weight_stride, kTileRows));
  SKEIN_ASSIGN_OR_RETURN(work.in, MapOf(op.dtype, op.in, op.rows, op.k, op.in_stride, F::kRows));
  const dim3 grid(static_cast<unsigned>((op.rows + F::kRows - 1) / F::kRows),
                  static_cast<unsigned>((op.n + kTileRows - 1) / kTileRows));
  return Launch(BatchInvariantKernel<T, Out, F, kTree>,
                {"BatchInvariantLinear", grid, dim3(kTileThreads), F::kLaunchBytes}, stream, work);
}

// However many rows a tile has, a row's sums are added by the same instructions in the same order.
// The subtrees that wait leave registers for tiles of 64 rows.
template <typename T, typename Out>
absl::Status StartForRows(const BatchInvariantLinear& op, Stream stream) {
  if (op.blocks > 1) {
    if (op.rows <= 16) return Start<T, Out, Form<16>, true>(op, stream);
    return Start<T, Out, Form<64>, true>(op, stream);
  }
  if (op.rows <= 16) return Start<T, Out, Form<16>, false>(op, stream);
  if (op.rows <= 64) return Start<T, Out, Form<64>, false>(op, stream);
  return Start<T, Out, Form<256>, false>(op, stream);
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
      return StartForRows<T, Out>(op, stream);
    });
  });
}

const void* KernelOfBatchInvariantLinear() {
  return reinterpret_cast<const void*>(BatchInvariantKernel<__nv_bfloat16, float, Form<16>, false>);
}

}  // namespace skein::kernels::cuda
