#include <algorithm>

#include "absl/strings/str_cat.h"
#include "kernels/cuda/few_rows_linear.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/mma.cuh"
#include "kernels/cuda/vectors.cuh"

namespace skein::kernels::cuda {
namespace {

// Each warp of a block has a share of the inner dimension: enough of them that a multiprocessor has
// 64 KB of weights on their way, with few blocks.
constexpr int kWarps = 8;
constexpr int kThreads = kWarps * kWarp;
// Weight rows of an mma, and rows of `in` (its columns).
constexpr int kTileN = 16;
constexpr int kTileRows = 8;
// Columns that the four lanes of a quad read at once, 16 bytes each.
constexpr int kQuadCols = 4 * kVector;

// Weights are streamed: they are read once.
__device__ inline uint4 LoadOnce(const void* p) {
  uint4 v;
  asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(p));
  return v;
}

// A warp's part: tiles of 16 weight rows as the operand A, rows of `in` as B. The sum over k has
// any order, so a lane of quad q takes columns 8 * q to 8 * q + 7 of each 32 for both operands, 16
// bytes from each row: they are two mma's k = 2 * q, 2 * q + 1, 2 * q + 8 and 2 * q + 9.
template <typename T, int kTiles, int kRowTiles, int kUnroll>
struct LinearWarp {
  static constexpr int kStep = kUnroll * kQuadCols;  // columns

  const FewRowsLinear& op;
  const T* weight[kTiles][2];  // of this lane: its rows at its columns
  const T* in[kRowTiles];      // likewise; null: the row is not there
  uint4 w[kUnroll][kTiles][2];
  float sums[kTiles][kRowTiles][4];

  __device__ LinearWarp(const FewRowsLinear& op, int64_t first_n) : op(op), sums{} {
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    const int at = lane % 4 * kVector;
#pragma unroll
    for (int t = 0; t < kTiles; ++t) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        // Rows beyond the last one are read in its place, and not written.
        const int64_t n = min(first_n + t * kTileN + half * 8 + lane / 4, op.n - 1);
        weight[t][half] = static_cast<const T*>(op.weight) + n * op.weight_stride + at;
      }
    }
#pragma unroll
    for (int r = 0; r < kRowTiles; ++r) {
      const int64_t row = r * kTileRows + lane / 4;
      in[r] = row < op.rows ? static_cast<const T*>(op.in) + row * op.in_stride + at : nullptr;
    }
  }

  __device__ bool Inside(int64_t k) const {
    return k + static_cast<int>(threadIdx.x) % 4 * kVector < op.k;
  }

  __device__ void LoadWeights(int64_t k) {
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      const bool inside = Inside(k + u * kQuadCols);
#pragma unroll
      for (int t = 0; t < kTiles; ++t) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          w[u][t][half] = inside ? LoadOnce(weight[t][half] + k + u * kQuadCols) : uint4{};
        }
      }
    }
  }

  __device__ void Multiply(int64_t k) {
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      const bool inside = Inside(k + u * kQuadCols);
#pragma unroll
      for (int r = 0; r < kRowTiles; ++r) {
        uint4 x = {};
        if (inside && in[r] != nullptr) {
          x = *reinterpret_cast<const uint4*>(in[r] + k + u * kQuadCols);
        }
#pragma unroll
        for (int t = 0; t < kTiles; ++t) {
          const uint4& a = w[u][t][0];
          const uint4& b = w[u][t][1];
          Mma<T>(sums[t][r], {a.x, b.x, a.y, b.y}, x.x, x.y);
          Mma<T>(sums[t][r], {a.z, b.z, a.w, b.w}, x.z, x.w);
        }
      }
    }
  }
};

__device__ inline float Silu(float x) { return x / (1.0f + __expf(-x)); }

// Blocks of kTiles * 16 weight rows. The warps take turns in steps of columns; their sums meet in
// shared memory and are added in the warps' order. The first weights are asked for before the
// kernel that makes `in` has ended.
template <typename T, typename Out, int kTiles, int kRowTiles, int kUnroll>
__global__ void __launch_bounds__(kThreads)
    FewRowsKernel(const __grid_constant__ FewRowsLinear op) {
  constexpr int kN = kTiles * kTileN;
  constexpr int kRows = kRowTiles * kTileRows;
  // One float more a row: the eight rows that a store writes are in other banks.
  __shared__ float partial[kWarps][kRows][kN + 1];
  using Warp = LinearWarp<T, kTiles, kRowTiles, kUnroll>;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int64_t first_n = int64_t{blockIdx.x} * kN;

  Warp work(op, first_n);
  int64_t k = int64_t{warp} * Warp::kStep;
  work.LoadWeights(k);
  WaitForPrevious();
  LetNextBegin();
  while (k < op.k) {
    work.Multiply(k);
    k += kWarps * Warp::kStep;
    if (k < op.k) work.LoadWeights(k);
  }
#pragma unroll
  for (int t = 0; t < kTiles; ++t) {
#pragma unroll
    for (int r = 0; r < kRowTiles; ++r) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        partial[warp][r * kTileRows + lane % 4 * 2 + i % 2][t * kTileN + i / 2 * 8 + lane / 4] =
            work.sums[t][r][i];
      }
    }
  }
  __syncthreads();

  const auto sum = [&](int row, int n) {
    float total = 0;
#pragma unroll
    for (int w = 0; w < kWarps; ++w) total += partial[w][row][n];
    return total;
  };
  auto* out = static_cast<Out*>(op.out);
  if (op.swiglu) {
    for (int i = static_cast<int>(threadIdx.x); i < op.rows * kN / 2; i += kThreads) {
      const int row = i / (kN / 2);
      const int col = i % (kN / 2);
      const int gate = col / 8 * 16 + col % 8;
      if (first_n + gate + 8 >= op.n) continue;
      out[row * op.out_stride + first_n / 2 + col] =
          static_cast<Out>(Silu(sum(row, gate)) * sum(row, gate + 8));
    }
    return;
  }
  for (int i = static_cast<int>(threadIdx.x); i < op.rows * kN; i += kThreads) {
    const int row = i / kN;
    const int64_t n = first_n + i % kN;
    if (n >= op.n) continue;
    float total = sum(row, i % kN);
    if (op.bias != nullptr) total += op.bias[n];
    if (op.residual != nullptr) {
      total +=
          static_cast<float>(static_cast<const Out*>(op.residual)[row * op.residual_stride + n]);
    }
    out[row * op.out_stride + n] = static_cast<Out>(total);
  }
}

template <typename T, typename Out>
absl::Status Start(const FewRowsLinear& op, Stream stream) {
  // Rows of `in` come from the L2 cache for every block: with more of them, wider blocks.
  if (op.rows <= kTileRows) {
    const auto blocks = static_cast<unsigned>((op.n + kTileN - 1) / kTileN);
    return Launch(FewRowsKernel<T, Out, 1, 1, 4>, {"FewRowsLinear", dim3(blocks), dim3(kThreads)},
                  stream, op);
  }
  const auto blocks = static_cast<unsigned>((op.n + 2 * kTileN - 1) / (2 * kTileN));
  return Launch(FewRowsKernel<T, Out, 2, 2, 2>, {"FewRowsLinear", dim3(blocks), dim3(kThreads)},
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
  if (op.rows == 0) return absl::OkStatus();
  return With16BitType(op.dtype, [&]<typename T>(TypeTag<T>) {
    return WithFloatOr<T>(op.out_dtype, op.dtype,
                          [&]<typename Out>(TypeTag<Out>) { return Start<T, Out>(op, stream); });
  });
}

}  // namespace skein::kernels::cuda
