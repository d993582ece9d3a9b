#include <algorithm>

#include "absl/strings/str_cat.h"
#include "kernels/cuda/attention_tile.cuh"
#include "kernels/cuda/bulk_copy.cuh"
#include "kernels/cuda/int8_tile.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/load_kernels.h"
#include "kernels/cuda/prefill_attention.h"
#include "kernels/cuda/prefill_tile.cuh"
#include "kernels/cuda/vectors.cuh"

namespace skein::kernels::cuda {
namespace {

constexpr int kWarps = 8;
constexpr int kThreads = kWarps * kWarp;
// Query rows of a block: of (token, query head of the group), so that a group shares its keys.
constexpr int kRows = kWarps * 16;
// Blocks of the cache that are worked on at once: 64 positions.
constexpr int kTileBlocks = 4;
constexpr int kTile = kTileBlocks * kKvBlock;
// Tiles on their way or in use.
constexpr int kStages = 3;

template <typename T, int kHeadDim, bool kInt8>
struct PrefillBlock {
  static constexpr int kBlockBytes = KvBlockBytes(kHeadDim, kInt8);
  static constexpr int kStageBytes = kTileBlocks * kBlockBytes;
  // Blocks of 16 bits, which products take.
  static constexpr int kBlockElements = KvBlockElements(kHeadDim);
  // Where int8 tiles are widened to: one is written while slow warps still read the other. Each has
  // scales of keys and of values behind it.
  static constexpr int kWideElements = kTileBlocks * kBlockElements;
  static constexpr int kWideBytes = kInt8 ? 2 * kWideElements + 2 * kTile * 4 : 0;
  static constexpr int kSharedBytes = kStages * kStageBytes + 2 * kWideBytes;

  // What is known so far: softmax, and sums of weight * value.
  struct State {
    OnlineSoftmax softmax;
    float o[kHeadDim / 8][4] = {};
  };

  const PrefillAttention& op;
  Tile tile;
  int group;
  int kv_head;
  char* ring;                // [kStages] tiles, then those that are widened
  ArrivalBarrier* barriers;  // [kStages]
  uint32_t q[kHeadDim / 16][4];
  int sees_from[2];  // this lane's two rows see [sees_from, sees_to)
  int sees_to[2];

  __device__ static int lane() { return static_cast<int>(threadIdx.x) % kWarp; }
  __device__ static int warp() { return static_cast<int>(threadIdx.x) / kWarp; }
  // This lane's row of the tile.
  __device__ int Row(int half) const {
    return tile.first_row + warp() * 16 + lane() / 4 + half * 8;
  }
  __device__ int64_t Offset(int row, int64_t stride) const {
    return (tile.tokens_at + row / group) * stride +
           (int64_t{kv_head} * group + row % group) * kHeadDim;
  }

  // By the first warp: copies of the blocks of positions [at, at + kTile) that any row sees.
  __device__ void Fill(int at, int stage) {
    const int block = at / kKvBlock + lane();
    const bool wanted =
        lane() < kTileBlocks && block * kKvBlock < tile.end && (block + 1) * kKvBlock > tile.begin;
    const unsigned all = __ballot_sync(0xffffffffu, wanted);
    const void* from = nullptr;
    if (wanted) {
      const int position = block * kKvBlock;
      const int64_t page =
          op.batch.page_tables[tile.slot * op.batch.page_table_stride + position / op.kv.page_size];
      from = op.kv.Block(page, kv_head, position % op.kv.page_size);
    }
    WarpCopy(ring + stage * kStageBytes + lane() * kBlockBytes, from, wanted ? kBlockBytes : 0,
             __popc(all) * kBlockBytes, &barriers[stage]);
  }

  __device__ void LoadQueries() {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = Row(half);
      const bool real = row < tile.rows;
      const int position = tile.position + min(row, tile.rows - 1) / group;
      sees_to[half] = position + 1;
      sees_from[half] = op.window > 0 ? position + 1 - op.window : 0;
      const T* head = static_cast<const T*>(op.q) + Offset(min(row, tile.rows - 1), op.q_stride);
#pragma unroll
      for (int k = 0; k < kHeadDim / 16; ++k) {
        const T* pair = head + k * 16 + lane() % 4 * 2;
        q[k][half] = real ? *reinterpret_cast<const uint32_t*>(pair) : 0;
        q[k][half + 2] = real ? *reinterpret_cast<const uint32_t*>(pair + 8) : 0;
      }
    }
  }

  // Positions that nobody sees may hold anything, and a weight of 0 does not hide a NaN.
  __device__ void ClearValues(T* stage, int at) {
    constexpr int kChunks = kHeadDim / kKvChunk;
    for (int i = static_cast<int>(threadIdx.x); i < kTile * kChunks; i += kThreads) {
      const int row = i / kChunks;
      if (at + row >= tile.begin && at + row < tile.end) continue;
      T* values = stage + row / kKvBlock * kBlockElements + kKvBlock * kHeadDim;
      *reinterpret_cast<uint4*>(values + KvChunkOffset(kHeadDim, row % kKvBlock, i % kChunks)) =
          make_uint4(0, 0, 0, 0);
    }
    FenceBeforeBulkCopy();
    __syncthreads();
  }

  // By all threads: the int8 tile of a stage as elements of T, with its scales.
  __device__ void WidenStage(const char* stage, int at, T* wide) {
    const int thread = static_cast<int>(threadIdx.x);
#pragma unroll
    for (int part = 0; part < 2; ++part) {
      const auto place = [&](int i, int panel) {
        return wide + i / 2 * kBlockElements + part * kKvBlock * kHeadDim +
               (panel * kKvBlock + i % 2 * 8) * KvPanelCols(kHeadDim);
      };
      WidenTile<T, kHeadDim, kTile, kThreads>(stage, part == 1, thread, place);
    }
    auto* scales = reinterpret_cast<float*>(wide + kWideElements);
    CopyScales<T, kHeadDim, kTile>(stage, at, tile.begin, tile.end, thread, scales, scales + kTile);
  }

  // Adds positions [at, at + kTile), of a tile in 16 bits.
  __device__ void Attend(const T* stage, int at, State& state) {
    const auto* scales = reinterpret_cast<const float*>(stage + kWideElements);  // of int8
    BlockScores s[kTileBlocks] = {};
#pragma unroll
    for (int b = 0; b < kTileBlocks; ++b) {
      AddScores<T, kHeadDim>(q, SharedAddress(stage + b * kBlockElements), s[b]);
      if constexpr (kInt8) ScalePositions(s[b], scales + b * kKvBlock);
    }
    // Of two rows the lower one sees less at the end, and more at the begin.
    if (__any_sync(0xffffffffu, at + kTile > sees_to[0] || at < sees_from[1])) {
#pragma unroll
      for (int b = 0; b < kTileBlocks; ++b) {
        MaskScores(s[b], at + b * kKvBlock, sees_from, sees_to);
      }
    }
    state.softmax.Weigh(s, op.scale * kLog2E);
    state.softmax.Shrink(state.o);
#pragma unroll
    for (int b = 0; b < kTileBlocks; ++b) {
      if constexpr (kInt8) ScalePositions(s[b], scales + kTile + b * kKvBlock);
      AddValues<T, kHeadDim>(s[b], SharedAddress(stage + b * kBlockElements + kKvBlock * kHeadDim),
                             state.o);
    }
  }

  __device__ void Write(const State& state) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float inverse = 1.0f / QuadSum(state.softmax.sum[half]);
      if (Row(half) >= tile.rows) continue;
      T* out = static_cast<T*>(op.out) + Offset(Row(half), op.out_stride) + lane() % 4 * 2;
#pragma unroll
      for (int d = 0; d < kHeadDim / 8; ++d) {
        *reinterpret_cast<uint32_t*>(out + d * 8) =
            RoundedPair<T>(state.o[d][2 * half] * inverse, state.o[d][2 * half + 1] * inverse);
      }
    }
  }

  __device__ void Work() {
    const int first = tile.begin / kTile * kTile;
    if (warp() == 0) {
      for (int i = 0; i < kStages && first + i * kTile < tile.end; ++i) Fill(first + i * kTile, i);
    }
    LoadQueries();
    State state;
    int stage = 0;
    uint32_t parity = 0;
    // Once all warps have read the stage.
    const auto refill = [&](int at) {
      __syncthreads();
      const int next = at + kStages * kTile;
      if (warp() == 0 && next < tile.end) Fill(next, stage);
    };
    for (int at = first; at < tile.end; at += kTile) {
      char* keys = ring + stage * kStageBytes;
      WaitFor(&barriers[stage], parity);
      if constexpr (kInt8) {
        char* wides = ring + kStages * kStageBytes;
        auto* wide = reinterpret_cast<T*>(wides + at / kTile % 2 * kWideBytes);
        WidenStage(keys, at, wide);
        refill(at);
        Attend(wide, at, state);
      } else {
        auto* elements = reinterpret_cast<T*>(keys);
        if (at < tile.begin || at + kTile > tile.end) ClearValues(elements, at);
        Attend(elements, at, state);
        refill(at);
      }
      if (++stage == kStages) stage = 0, parity ^= 1;
    }
    Write(state);
  }
};

// Blocks (tiles, KV heads). A warp has 16 rows and their softmax; keys and values come through a
// ring of tiles of 64 positions that all warps read.
template <typename T, int kHeadDim, bool kInt8>
__global__ void __launch_bounds__(kThreads, 1)
    PrefillKernel(const __grid_constant__ PrefillAttention op) {
  extern __shared__ __align__(1024) char shared[];
  __shared__ ArrivalBarrier barriers[kStages];
  WaitForPrevious();
  LetNextBegin();
  const int group = op.heads / op.kv.kv_heads;
  Tile tile = FindTile<kRows>(op, group, static_cast<int>(blockIdx.x));
  if (tile.sequence < 0) return;
  SeePositions<kRows>(op, group, tile);
  if (threadIdx.x == 0) {
    for (ArrivalBarrier& barrier : barriers) InitBarrier(&barrier, kCopyArrivals);
    PublishBarriers();
  }
  __syncthreads();
  PrefillBlock<T, kHeadDim, kInt8> block = {op,     tile,    group, static_cast<int>(blockIdx.y),
                                            shared, barriers};
  block.Work();
}

template <typename T, int kHeadDim, bool kInt8>
absl::Status Start(const PrefillAttention& op, Stream stream) {
  return Launch(
      PrefillKernel<T, kHeadDim, kInt8>,
      {"PrefillAttention",
       dim3(static_cast<unsigned>(MostTiles<kRows>(op)), static_cast<unsigned>(op.kv.kv_heads)),
       dim3(kThreads), size_t{PrefillBlock<T, kHeadDim, kInt8>::kSharedBytes}},
      stream, op);
}

}  // namespace

absl::Status Enqueue(const PrefillAttention& op, Stream stream) {
  if (!KvHeadDimIsSupported(op.kv.head_dim) || op.kv.page_size <= 0 ||
      op.kv.page_size % kKvBlock != 0) {
    return absl::UnimplementedError(
        absl::StrCat("PrefillAttention with heads of ", op.kv.head_dim, " and pages of ",
                     op.kv.page_size, ": heads of 64, 96 or 128, pages of a multiple of 16"));
  }
  if (op.kv.kv_heads <= 0 || op.heads <= 0 || op.heads % op.kv.kv_heads != 0 || !(op.scale > 0) ||
      (op.q_stride | op.out_stride) % kVector != 0) {
    return absl::InvalidArgumentError(
        "PrefillAttention: heads are a multiple of the KV heads, strides of 8; scale is positive");
  }
  if (!Aligned16({op.kv.data, op.q, op.out})) {
    return absl::InvalidArgumentError("PrefillAttention: operands are 16-byte aligned");
  }
  if (op.rows == 0 || op.batch.sequences == 0) return absl::OkStatus();
  if (op.form == PrefillForm::kWarpgroups) return EnqueueWarpgroupForm(op, stream);
  return WithKvShape(op, [&]<typename T, int kHeadDim, bool kInt8>() {
    return Start<T, kHeadDim, kInt8>(op, stream);
  });
}

const void* KernelOfPrefillAttention() {
  return reinterpret_cast<const void*>(PrefillKernel<__nv_bfloat16, 128, false>);
}

}  // namespace skein::kernels::cuda
