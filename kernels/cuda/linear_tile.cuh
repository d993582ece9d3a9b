// What products by wgmma share: a block's tile of weight rows, the ring that its operands come by,
// and how sums are written.
//
// Two groups of four warps multiply, a warp fetches. A form says which operand is the product's A,
// and what a group has of each. In `Form` weights are: a group multiplies 64 weight rows with all
// rows of `in`, and lane l of warp w of it has D's weight rows 16 * w + l / 4 and 8 more, rows
// 8 * j + l % 4 * 2 and the next of `in`.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/bulk_copy.cuh"
#include "kernels/cuda/launch.cuh"
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
// Of a block's ring, at most; tensor copies swizzle by the address.
inline constexpr int kSharedBytes = 224 << 10;
inline constexpr int kSharedAlignment = 1024;

// A stage holds a step's weights, then its `in`.
template <int kWeightRows, int kInRows>
struct Ring {
  static constexpr int kWeightBytes = kWeightRows * kLineBytes;
  static constexpr int kStageBytes = kWeightBytes + kInRows * kLineBytes;
  static constexpr int kStages = kSharedBytes / kStageBytes;
  static constexpr size_t kLaunchBytes = size_t{kStages} * kStageBytes + kSharedAlignment;
};

// A kernel for so many rows of `in`, or fewer.
template <int kInRows>
struct Form : Ring<kTileRows, kInRows> {
  static constexpr int kRows = kInRows;
  static constexpr int kSums = kRows / 2;  // of a thread
  // Where a group's operands lie in a stage.
  __device__ static constexpr int AByte(int group) { return group * kGroupRows * kLineBytes; }
  __device__ static constexpr int BByte(int) { return Form::kWeightBytes; }
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

// What a step of k multiplies: columns from `column` on, of a tile's weight rows and of `in`.
struct TilePlace {
  int column;
  int weight_row;
  int in_row;
};

// The fetching thread. Steps: left() tells whether there are more, Next() gives a TilePlace.
// Weights depend on no kernel before: as many as the ring takes come first.
template <typename F, typename Steps>
struct TileFetcher {
  const CUtensorMap& weight;
  const CUtensorMap& in;
  char* ring;
  TileBarriers<F>& shared;
  uint64_t weight_policy;
  uint64_t in_policy = EvictLast();

  __device__ void Weight(int stage, const TilePlace& place) {
    ExpectBytes(&shared.full[stage], F::kStageBytes);
    TensorCopy(ring + stage * F::kStageBytes, weight, place.column, place.weight_row,
               &shared.full[stage], weight_policy);
  }
  __device__ void In(int stage, const TilePlace& place) {
    TensorCopy(ring + stage * F::kStageBytes + F::kWeightBytes, in, place.column, place.in_row,
               &shared.full[stage], in_policy);
  }

  __device__ void Run(const Steps& steps) {
    Steps weights = steps;
    Steps ins = steps;
    int ahead = 0;
    while (ahead < F::kStages && weights.left()) Weight(ahead++, weights.Next());
    WaitForPrevious();
    LetNextBegin();
    RingPlace<F::kStages> at;
    for (int i = 0; i < ahead; ++i, at.Next()) In(i, ins.Next());
    for (; weights.left(); at.Next()) {
      WaitFor(&shared.empty[at.stage], at.parity ^ 1);
      const TilePlace place = weights.Next();
      Weight(at.stage, place);
      In(at.stage, place);
    }
  }
};

// A thread of a multiplying group.
template <typename T, typename F>
struct TileMultiplier {
  static constexpr int kSums = F::kSums;

  const char* ring;
  TileBarriers<F>& shared;
  int group;
  RingPlace<F::kStages> place;
  float sums[kSums];

  // sums = of the next `columns`, whose last step may be a short one, of a multiple of 16 columns,
  // if kShort.
  template <bool kShort>
  __device__ void Multiply(int columns) {
    int before = -1;
    Pin(sums);
    for (int done = 0; done < columns; done += kStepK) {
      WaitFor(&shared.full[place.stage], place.parity);
      BeginProducts();
      AddStep<kShort>(columns - done, /*fresh=*/done == 0);
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

 private:
  __device__ void Release(int stage) {
    if (Lane() == 0) Arrive(&shared.empty[stage]);
  }

  template <bool kShort>
  __device__ void AddStep(int columns, bool fresh) {
    const uint32_t at = SharedAddress(ring) + place.stage * F::kStageBytes;
    const uint64_t a = Descriptor(at + F::AByte(group), kLineBytes, 0);
    const uint64_t b = Descriptor(at + F::BByte(group), kLineBytes, 0);
#pragma unroll
    for (int i = 0; i < kStepK / 16; ++i) {
      if (kShort && i * 16 >= columns) break;
      // 16 columns are 32 bytes, 2 of a descriptor's units.
      WgmmaShared<T>::Add(sums, a + 2 * i, b + 2 * i, !fresh || i > 0);
    }
  }
};

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

// Writes a thread's sums of 64 weight rows from `n` on, by 8 rows from `first_row` on.
template <typename T, typename Out>
__device__ void WriteEightRows(const TileOut& to, const float (&d)[4], int64_t first_row,
                               int64_t n) {
  const int quad = Lane() % 4;
  n += static_cast<int>(threadIdx.x) % kGroupThreads / kWarp * 16;  // the warp's first
  auto* const out = static_cast<Out*>(to.out);
  using Pair = PairOf<T>;
  if constexpr (sizeof(Out) == 4) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int64_t row = first_row + 2 * quad + i % 2;
      const int64_t column = n + i / 2 * 8 + Lane() / 4;
      if (row < to.rows && column < to.n) out[row * to.stride + column] = d[i];
    }
  } else {
    const int64_t row = first_row + Lane() / 4;
    const auto put = [&](int64_t column, typename Pair::type pair, int64_t columns) {
      const uint32_t turned = Transposed(reinterpret_cast<const uint32_t&>(pair));
      if (row >= to.rows || column >= columns) return;
      *reinterpret_cast<uint32_t*>(out + row * to.stride + column + 2 * quad) = turned;
    };
    if (to.swiglu) {
      put(n / 2, Pair::Round(Silu(d[0]) * d[2], Silu(d[1]) * d[3]), to.n / 2);
    } else {
      put(n, Pair::Round(d[0], d[1]), to.n);
      put(n + 8, Pair::Round(d[2], d[3]), to.n);
    }
  }
}

// Writes all sums of a thread, of the tile whose weight rows begin at `n`, by rows from `first_row`
// on.
template <typename Out, typename T, typename F>
__device__ void WriteSums(const TileOut& to, const TileMultiplier<T, F>& of, int64_t first_row,
                          int64_t n) {
#pragma unroll
  for (int j = 0; j < F::kRows / 8; ++j) {
    const float* const d = of.sums + 4 * j;
    WriteEightRows<T, Out>(to, {d[0], d[1], d[2], d[3]}, first_row + 8 * j,
                           n + of.group * kGroupRows);
  }
}

}  // namespace skein::kernels::cuda
