// What products by wgmma share: a block's tile of weight rows, the ring that its operands come by,
// and how sums are written.
//
// Weights are the product's A, rows of `in` columns of its B. Two groups of four warps multiply,
// each 64 weight rows with all rows of `in`; a warp fetches. Lane l of warp w of a group has D's
// weight rows 16 * w + l / 4 and 8 more, rows 8 * j + l % 4 * 2 and the next of `in`.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/bulk_copy.cuh"
#include "kernels/cuda/mma.cuh"
#include "kernels/cuda/stream_k_sizes.h"
#include "kernels/cuda/vectors.cuh"
#include "kernels/cuda/wgmma.cuh"

namespace skein::kernels::cuda {

inline constexpr int kGroups = kStreamKGroups;
inline constexpr int kGroupWarps = 4;
inline constexpr int kGroupThreads = kGroupWarps * kWarp;
inline constexpr int kTileThreads = (kGroups * kGroupWarps + 1) * kWarp;
inline constexpr int kGroupRows = 64;
inline constexpr int kTileRows = kStreamKTileRows;
static_assert(kTileRows == kGroups * kGroupRows);
// A step of k: 128 bytes of a row, which are a swizzled line of shared memory.
inline constexpr int kStepK = 64;
inline constexpr int kLineBytes = 128;
inline constexpr int kWeightBytes = kTileRows * kLineBytes;
// Of a block's ring, at most; tensor copies swizzle by the address.
inline constexpr int kSharedBytes = 224 << 10;
inline constexpr int kSharedAlignment = 1024;

// A kernel for so many rows of `in`, or fewer. A stage holds a step's weights, then its `in`.
template <int kInRows>
struct Form {
  static constexpr int kRows = kInRows;
  static constexpr int kStageBytes = kWeightBytes + kRows * kLineBytes;
  static constexpr int kStages = kSharedBytes / kStageBytes;
  static constexpr size_t kLaunchBytes = size_t{kStages} * kStageBytes + kSharedAlignment;
};

// Returns the ring in a block's dynamic shared memory, of kLaunchBytes.
__device__ inline char* RingOf(char* unaligned) {
  return unaligned + -SharedAddress(unaligned) % kSharedAlignment;
}

template <typename F>
struct TileBarriers {
  ArrivalBarrier full[F::kStages];
  ArrivalBarrier empty[F::kStages];

  // By one thread, then a barrier of all.
  __device__ void Init() {
    for (int i = 0; i < F::kStages; ++i) {
      InitBarrier(&full[i]);
      InitBarrier(&empty[i], kGroups * kGroupWarps);
    }
    PublishBarriers();
  }
};

// Adds the first `columns` of a stage's, a multiple of 16 to kStepK; fresh: to nothing.
template <typename T, typename F>
__device__ void MultiplyStage(const char* ring, int stage, int group, int columns, bool fresh,
                              float (&sums)[F::kRows / 2]) {
  const uint32_t at = SharedAddress(ring) + stage * F::kStageBytes;
  const uint64_t a = Descriptor(at + group * kGroupRows * kLineBytes, kLineBytes, 0);
  const uint64_t b = Descriptor(at + kWeightBytes, kLineBytes, 0);
#pragma unroll
  for (int i = 0; i < kStepK / 16; ++i) {
    if (i * 16 >= columns) break;
    // 16 columns are 32 bytes, 2 of a descriptor's units.
    WgmmaShared<T>::Add(sums, a + 2 * i, b + 2 * i, !fresh || i > 0);
  }
}

// Transposes an 8 x 8 matrix over a warp; a lane has two neighbours of a row.
__device__ inline uint32_t Transposed(uint32_t pair) {
  uint32_t turned;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(turned) : "r"(pair));
  return turned;
}

// Where sums go.
struct TileOut {
  void* out;
  int64_t rows;
  int64_t n;
  int64_t stride;
  bool swiglu;

  template <typename Linear>
  __device__ static TileOut Of(const Linear& op) {
    return {op.out, op.rows, op.n, op.out_stride, op.swiglu};
  }
};

// Writes a thread's sums of its group's 64 weight rows from `n` on, by kRows rows from `first_row`
// on.
template <typename T, typename Out, int kRows>
__device__ void WriteSums(const TileOut& to, const float (&sums)[kRows / 2], int64_t first_row,
                          int64_t n) {
  const int quad = Lane() % 4;
  n += static_cast<int>(threadIdx.x) % kGroupThreads / kWarp * 16;  // the warp's first
  auto* const out = static_cast<Out*>(to.out);
  using Pair = PairOf<T>;
  const auto put = [&](int64_t row, int64_t column, typename Pair::type pair, int64_t columns) {
    const uint32_t turned = Transposed(reinterpret_cast<const uint32_t&>(pair));
    if (row >= to.rows || column >= columns) return;
    *reinterpret_cast<uint32_t*>(out + row * to.stride + column + 2 * quad) = turned;
  };
#pragma unroll
  for (int j = 0; j < kRows / 8; ++j) {
    const float* const d = sums + 4 * j;
    if constexpr (sizeof(Out) == 4) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int64_t row = first_row + 8 * j + 2 * quad + i % 2;
        const int64_t column = n + i / 2 * 8 + Lane() / 4;
        if (row < to.rows && column < to.n) out[row * to.stride + column] = d[i];
      }
    } else {
      const int64_t row = first_row + 8 * j + Lane() / 4;
      if (to.swiglu) {
        put(row, n / 2, Pair::Round(Silu(d[0]) * d[2], Silu(d[1]) * d[3]), to.n / 2);
      } else {
        put(row, n, Pair::Round(d[0], d[1]), to.n);
        put(row, n + 8, Pair::Round(d[2], d[3]), to.n);
      }
    }
  }
}

}  // namespace skein::kernels::cuda
