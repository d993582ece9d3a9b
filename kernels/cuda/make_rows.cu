#include <cuda_fp16.h>

#include <algorithm>

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/load_kernels.h"
#include "kernels/cuda/make_rows.h"

namespace skein::kernels::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int64_t kColumns = 8;  // of a thread: a word of SplitMix64
// The grid's y dimension ends there; blocks take further rows in turn.
constexpr int64_t kMaxGridRows = 65535;

__device__ inline int64_t PlaceOf(const MakeRows& op, int64_t row) {
  if (op.gates == 0) return row;
  const bool up = row >= op.gates;
  const int64_t of_kind = up ? row - op.gates : row;
  return of_kind / kInterleave * 2 * kInterleave + (up ? kInterleave : 0) + of_kind % kInterleave;
}

// 8 bytes of the seed from number `index` on.
__device__ inline uint64_t BytesFrom(uint64_t seed, uint64_t index) {
  const uint64_t word = SplitMix64(seed, index / 8);
  const int bits = static_cast<int>(index % 8) * 8;
  return bits == 0 ? word : word >> bits | SplitMix64(seed, index / 8 + 1) << (64 - bits);
}

// Of a number that is exact in both: bf16 is the upper half of a float.
template <bool kIsHalf>
__device__ inline uint16_t BitsOf(float number) {
  if constexpr (kIsHalf) return __half_as_ushort(__float2half_rn(number));
  return static_cast<uint16_t>(__float_as_uint(number) >> 16);
}

// Blocks (columns / 2048, rows); a thread makes 8 columns of a row.
template <bool kIsHalf>
__global__ void __launch_bounds__(kThreads) MakeRowsKernel(MakeRows op) {
  WaitForPrevious();
  LetNextBegin();
  const int64_t col = (int64_t{blockIdx.x} * kThreads + threadIdx.x) * kColumns;
  if (col >= op.cols) return;
  for (int64_t row = blockIdx.y; row < op.rows; row += gridDim.y) {
    const auto index = static_cast<uint64_t>(op.numbers.first + row * op.numbers.stride + col);
    const uint64_t bytes = BytesFrom(op.numbers.seed, index);
    alignas(16) uint16_t made[kColumns];
#pragma unroll
    for (int i = 0; i < kColumns; ++i) {
      made[i] = BitsOf<kIsHalf>(NumberOfByte(static_cast<uint8_t>(bytes >> (8 * i))));
    }
    uint16_t* const out =
        static_cast<uint16_t*>(op.matrix) + PlaceOf(op, op.first_row + row) * op.cols + col;
    if (op.cols % kColumns == 0) {
      *reinterpret_cast<uint4*>(out) = *reinterpret_cast<const uint4*>(made);
    } else {
      for (int64_t i = 0; i < min(kColumns, op.cols - col); ++i) out[i] = made[i];
    }
  }
}

}  // namespace

absl::Status Enqueue(const MakeRows& op, Stream stream) {
  const bool is_half = op.dtype == DType::kF16;
  if (!is_half && op.dtype != DType::kBF16) {
    return absl::UnimplementedError("MakeRows: numbers are made in BF16 and F16");
  }
  if (op.gates % kInterleave != 0 || !Aligned16({op.matrix})) {
    return absl::InvalidArgumentError(
        "MakeRows: gates are a multiple of 8, and the matrix is 16-byte aligned");
  }
  if (op.rows == 0 || op.cols == 0) return absl::OkStatus();
  const int64_t columns = kThreads * kColumns;
  return Launch(is_half ? MakeRowsKernel<true> : MakeRowsKernel<false>,
                {"MakeRows",
                 dim3(static_cast<unsigned>((op.cols + columns - 1) / columns),
                      static_cast<unsigned>(std::min(op.rows, kMaxGridRows))),
                 dim3(kThreads)},
                stream, op);
}

const void* KernelOfMakeRows() { return reinterpret_cast<const void*>(MakeRowsKernel<false>); }

}  // namespace skein::kernels::cuda
