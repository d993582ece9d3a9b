#include <algorithm>

#include "absl/strings/str_cat.h"
#include "kernels/cuda/bulk_copy.cuh"
#include "kernels/cuda/few_rows_linear.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/load_kernels.h"
#include "kernels/cuda/mma.cuh"
#include "kernels/cuda/vectors.cuh"

namespace skein::kernels::cuda {
namespace {

// Warps that multiply; one more fetches.
constexpr int kWarps = 8;
constexpr int kThreads = (kWarps + 1) * kWarp;
// Weight rows of an mma, and rows of `in` (its columns).
constexpr int kTileN = 16;
constexpr int kTileRows = 8;
// Columns that the four lanes of a quad read at once, 16 bytes each.
constexpr int kQuadCols = 4 * kVector;
// A unit of the ring is 16 weight rows by 1024 columns: each warp has 128 of these. It is fetched
// row by row, in copies of 2 KB.
constexpr int kQuads = 4;
constexpr int kWarpCols = kQuads * kQuadCols;
constexpr int kUnitCols = kWarps * kWarpCols;
// Bytes from row to row of a unit: half of the banks more than the columns take, so that the two
// rows that eight lanes read lie in different halves.
constexpr int kRowBytes = kUnitCols * 2 + 64;
constexpr int kUnitBytes = kTileN * kRowBytes;
// To 8 rows: 198 KB. With more rows half of it, which leaves room for `in` in the L1 cache: a
// guess, not measured.
constexpr int Stages(int row_tiles) { return row_tiles == 1 ? 6 : 3; }

// What the threads of a block share besides the ring.
template <int kRowTiles>
struct Shared {
  // One float more a row: the rows that a store writes at once are in other banks.
  float partial[2][kWarps][kRowTiles * kTileRows][kTileN + 1];
  ArrivalBarrier full[Stages(kRowTiles)];
  ArrivalBarrier empty[Stages(kRowTiles)];
};

// Tiles [begin, end) of 16 weight rows are this block's.
struct Share {
  int64_t begin;
  int64_t end;
};
__device__ Share OwnTiles(const FewRowsLinear& op) {
  const int64_t tiles = (op.n + kTileN - 1) / kTileN;
  return {tiles * blockIdx.x / gridDim.x, tiles * (blockIdx.x + 1) / gridDim.x};
}

// The fetching warp: lane i copies row i of each unit. Weights depend on no kernel before.
template <typename T, int kRowTiles>
__device__ void Fetch(const FewRowsLinear& op, char* ring, Shared<kRowTiles>& shared) {
  const Share share = OwnTiles(op);
  RingPlace<Stages(kRowTiles)> place;
  for (int64_t tile = share.begin; tile < share.end; ++tile) {
    // Rows beyond the last one are read in its place, and not written.
    const int64_t n = min(tile * kTileN + Lane() % kTileN, op.n - 1);
    const T* row = static_cast<const T*>(op.weight) + n * op.weight_stride;
    for (int64_t k = 0; k < op.k; k += kUnitCols) {
      const auto bytes = static_cast<uint32_t>(min(int64_t{kUnitCols}, op.k - k) * sizeof(T));
      WaitFor(&shared.empty[place.stage], place.parity ^ 1);
      if (Lane() == 0) ExpectBytes(&shared.full[place.stage], kTileN * bytes);
      __syncwarp();
      if (Lane() < kTileN) {
        BulkCopy(ring + place.stage * kUnitBytes + Lane() * kRowBytes, row + k, bytes,
                 &shared.full[place.stage]);
      }
      place.Next();
    }
  }
}

// A multiplying warp: its 128 columns of every unit. Weights are mma's operand A, `in` is B. The
// sum over k has any order, so a lane of quad q takes columns 8 * q to 8 * q + 7 of each 32 for
// both, 16 bytes of a row: they are two mma's k = 2 * q, 2 * q + 1, 2 * q + 8 and 2 * q + 9.
template <typename T, typename Out, int kRowTiles>
struct Multiplier {
  const FewRowsLinear& op;
  const char* ring;
  Shared<kRowTiles>& shared;
  int warp;
  RingPlace<Stages(kRowTiles)> place;
  uint4 x[kRowTiles][kQuads];  // of the unit that comes next
  float sums[kRowTiles][4];

  __device__ int64_t Column(int64_t k, int quad) const {
    return k + warp * kWarpCols + quad * kQuadCols + Lane() % 4 * kVector;
  }

  __device__ void LoadIn(int64_t k) {
#pragma unroll
    for (int r = 0; r < kRowTiles; ++r) {
      const int64_t row = r * kTileRows + Lane() / 4;
#pragma unroll
      for (int q = 0; q < kQuads; ++q) {
        const int64_t column = Column(k, q);
        const T* in = static_cast<const T*>(op.in) + row * op.in_stride + column;
        x[r][q] = row < op.rows && column < op.k ? *reinterpret_cast<const uint4*>(in) : uint4{};
      }
    }
  }

  __device__ void MultiplyUnit(int64_t k) {
    const char* rows = ring + place.stage * kUnitBytes + Lane() / 4 * kRowBytes +
                       (warp * kWarpCols + Lane() % 4 * kVector) * static_cast<int>(sizeof(T));
    uint4 low[kQuads];
    uint4 high[kQuads];
    WaitFor(&shared.full[place.stage], place.parity);
#pragma unroll
    for (int q = 0; q < kQuads; ++q) {
      const char* at = rows + q * kQuadCols * static_cast<int>(sizeof(T));
      low[q] = *reinterpret_cast<const uint4*>(at);
      high[q] = *reinterpret_cast<const uint4*>(at + 8 * kRowBytes);
      // The ring holds anything behind the last column.
      if (Column(k, q) >= op.k) low[q] = high[q] = uint4{};
    }
    __syncwarp();
    if (Lane() == 0) Arrive(&shared.empty[place.stage]);
    place.Next();
#pragma unroll
    for (int r = 0; r < kRowTiles; ++r) {
#pragma unroll
      for (int q = 0; q < kQuads; ++q) {
        Mma<T>(sums[r], {low[q].x, high[q].x, low[q].y, high[q].y}, x[r][q].x, x[r][q].y);
        Mma<T>(sums[r], {low[q].z, high[q].z, low[q].w, high[q].w}, x[r][q].z, x[r][q].w);
      }
    }
  }

  // Puts the warps' sums together, in their order, and writes the tile.
  __device__ void Finish(int64_t tile) {
    auto& partial = shared.partial[tile % 2];
#pragma unroll
    for (int r = 0; r < kRowTiles; ++r) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        partial[warp][r * kTileRows + Lane() % 4 * 2 + i % 2][i / 2 * 8 + Lane() / 4] = sums[r][i];
      }
    }
    // Of the multiplying warps. One a tile is enough: the tile after the next uses the same sums.
    asm volatile("bar.sync 1, %0;" ::"n"(kWarps * kWarp) : "memory");
    const auto sum = [&](int row, int n) {
      float total = 0;
#pragma unroll
      for (int w = 0; w < kWarps; ++w) total += partial[w][row][n];
      return total;
    };
    const int thread = static_cast<int>(threadIdx.x);
    const int row = thread / kTileN;
    const int64_t n = tile * kTileN + thread % kTileN;
    if (row >= op.rows || n >= op.n) return;
    if (op.swiglu) {
      const int gate = thread % kTileN;
      if (gate >= 8) return;
      static_cast<Out*>(op.out)[row * op.out_stride + tile * 8 + gate] =
          static_cast<Out>(Silu(sum(row, gate)) * sum(row, gate + 8));
      return;
    }
    float total = sum(row, thread % kTileN);
    if (op.bias != nullptr) total += op.bias[n];
    if (op.residual != nullptr) {
      total +=
          static_cast<float>(static_cast<const Out*>(op.residual)[row * op.residual_stride + n]);
    }
    static_cast<Out*>(op.out)[row * op.out_stride + n] = static_cast<Out>(total);
  }

  __device__ void Work() {
    const Share share = OwnTiles(op);
    if (share.begin < share.end) LoadIn(0);
    for (int64_t tile = share.begin; tile < share.end; ++tile) {
#pragma unroll
      for (int r = 0; r < kRowTiles; ++r) {
#pragma unroll
        for (int i = 0; i < 4; ++i) sums[r][i] = 0;
      }
      for (int64_t k = 0; k < op.k; k += kUnitCols) {
        MultiplyUnit(k);
        LoadIn(k + kUnitCols < op.k ? k + kUnitCols : 0);
      }
      Finish(tile);
    }
  }
};

// At most one block a multiprocessor; each has an equal run of tiles of 16 weight rows. A warp
// streams them through a ring of units, and begins before the kernel that makes `in` has ended;
// eight warps multiply.
template <typename T, typename Out, int kRowTiles>
__global__ void __launch_bounds__(kThreads, 1)
    FewRowsKernel(const __grid_constant__ FewRowsLinear op) {
  if constexpr (kHopper) {
    extern __shared__ __align__(128) char ring[];
    __shared__ Shared<kRowTiles> shared;
    const int warp = static_cast<int>(threadIdx.x) / kWarp;
    if (threadIdx.x == 0) {
      for (int i = 0; i < Stages(kRowTiles); ++i) {
        InitBarrier(&shared.full[i]);
        InitBarrier(&shared.empty[i], kWarps);
      }
      PublishBarriers();
    }
    __syncthreads();
    if (warp == kWarps) {
      Fetch<T, kRowTiles>(op, ring, shared);
      WaitForPrevious();
      LetNextBegin();
      return;
    }
    WaitForPrevious();
    LetNextBegin();
    Multiplier<T, Out, kRowTiles> work = {op, ring, shared, warp};
    work.Work();
  }
}

template <typename T, typename Out, int kRowTiles>
absl::Status Start(const FewRowsLinear& op, Stream stream) {
  const int64_t tiles = (op.n + kTileN - 1) / kTileN;
  const auto blocks = static_cast<unsigned>(std::min<int64_t>(tiles, op.multiprocessors));
  return Launch(
      FewRowsKernel<T, Out, kRowTiles>,
      {"FewRowsLinear", dim3(blocks), dim3(kThreads), size_t{Stages(kRowTiles)} * kUnitBytes},
      stream, op);
}

}  // namespace

absl::Status Enqueue(const FewRowsLinear& op, Stream stream) {
  if (op.rows < 0 || op.rows > kFewRows || op.n <= 0 || op.k <= 0 ||
      (op.k | op.in_stride | op.weight_stride) % kVector != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("FewRowsLinear of ", op.rows, " rows, ", op.n, " by ", op.k,
                     ": to 16 rows; inner dimension and strides are multiples of 8"));
  }
  if (op.swiglu && (op.n % kTileN != 0 || op.out_dtype != op.dtype || op.bias != nullptr ||
                    op.residual != nullptr)) {
    return absl::InvalidArgumentError(
        "FewRowsLinear with SwiGlu: a multiple of 16 weight rows, no bias, no residual, no F32");
  }
  if (op.multiprocessors <= 0) {
    return absl::InvalidArgumentError("FewRowsLinear: the device's multiprocessors");
  }
  if (!Aligned16({op.in, op.weight})) {
    return absl::InvalidArgumentError("FewRowsLinear: in and weight are 16-byte aligned");
  }
  if (op.rows == 0) return absl::OkStatus();
  if (op.out == op.in) {
    return absl::InvalidArgumentError(
        "FewRowsLinear in place: blocks still read what others write");
  }
  SKEIN_RETURN_IF_ERROR(NeedHopper("FewRowsLinear"));
  return With16BitType(op.dtype, [&]<typename T>(TypeTag<T>) {
    return WithFloatOr<T>(op.out_dtype, op.dtype, [&]<typename Out>(TypeTag<Out>) {
      return op.rows <= kTileRows ? Start<T, Out, 1>(op, stream) : Start<T, Out, 2>(op, stream);
    });
  });
}

const void* KernelOfFewRowsLinear() {
  return reinterpret_cast<const void*>(FewRowsKernel<__nv_bfloat16, float, 1>);
}

}  // namespace skein::kernels::cuda
