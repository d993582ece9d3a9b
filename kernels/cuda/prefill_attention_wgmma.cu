#include "kernels/cuda/attention_tile.cuh"
#include "kernels/cuda/bulk_copy.cuh"
#include "kernels/cuda/int8_tile.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/load_kernels.h"
#include "kernels/cuda/prefill_attention.h"
#include "kernels/cuda/prefill_tile.cuh"
#include "kernels/cuda/vectors.cuh"
#include "kernels/cuda/wgmma.cuh"

namespace skein::kernels::cuda {
namespace {

// A warpgroup: what wgmma takes.
constexpr int kGroup = 4 * kWarp;
// Two of them work on 64 query rows each; the third one fetches.
constexpr int kWorkers = 2;
constexpr int kThreads = (kWorkers + 1) * kGroup;
// Query rows of a block: of (token, query head of the group), so that a group shares its keys.
constexpr int kRows = kWorkers * 64;
// Blocks of the cache that are worked on at once: 128 positions, wgmma's n of the scores.
constexpr int kTileBlocks = 8;
constexpr int kTile = kTileBlocks * kKvBlock;
// Registers of a thread, for those that fetch and those that work: 168 at first, of 65536 in all.
// Those that fetch int8 widen it, too.
template <bool kInt8>
inline constexpr int kFetchRegisters = kInt8 ? 56 : 40;
template <bool kInt8>
inline constexpr int kWorkRegisters = kInt8 ? 224 : 232;

// Tiles of keys and of values, each as panels [128 positions, 64 columns] (or 32): blocks of the
// cache come panel by panel, so that a tile's panels are contiguous. Those of int8 come to stages
// of their own first, and are widened from there.
template <typename T, int kHeadDim, bool kInt8>
struct Ring {
  static constexpr int kPanelBytes = KvPanelCols(kHeadDim) * static_cast<int>(sizeof(T));  // a row
  static constexpr int kPanels = kHeadDim / KvPanelCols(kHeadDim);
  static constexpr int kPanelStride = kTile * kPanelBytes;
  static constexpr int kTileBytes = kPanels * kPanelStride;
  // As many as shared memory holds, of keys and values, to 4.
  static constexpr int kStages = (kHeadDim == 128 ? 3 : 4) - (kInt8 ? 1 : 0);
  // What comes as int8.
  static constexpr int kArriving = kInt8 ? 2 : 0;
  static constexpr int kArrivingBytes = kTileBlocks * KvBlockBytes(kHeadDim, true);
  static constexpr int kScaleBytes = kInt8 ? 2 * kTile * static_cast<int>(sizeof(float)) : 0;
  static constexpr int kBytes =
      kStages * (2 * kTileBytes + kScaleBytes) + kArriving * kArrivingBytes;

  // [kStages] of keys, [kStages] of values, [kArriving] of int8; [kStages] scales of keys and
  // values.
  char* tiles;
  ArrivalBarrier* keys_full;  // [kStages], as the others
  ArrivalBarrier* keys_empty;
  ArrivalBarrier* values_full;
  ArrivalBarrier* values_empty;

  __device__ char* Keys(int stage) const { return tiles + stage * kTileBytes; }
  __device__ char* Values(int stage) const { return tiles + (kStages + stage) * kTileBytes; }
  __device__ char* Arriving(int stage) const {
    return tiles + 2 * kStages * kTileBytes + stage * kArrivingBytes;
  }
  // [kTile] of keys, [kTile] of values.
  __device__ float* Scales(int stage) const {
    return reinterpret_cast<float*>(Arriving(kArriving) + stage * kScaleBytes);
  }
};

// The third warpgroup's first warp: a lane copies a panel of one of a tile's eight blocks. The
// other three warps have nothing to do: they would have to arrive at each tile, too, or lose count
// of the rounds.
template <typename T, int kHeadDim>
struct Fetcher {
  using KvRing = Ring<T, kHeadDim, false>;
  static constexpr int kCopies = kTileBlocks * KvRing::kPanels;
  static_assert(kCopies <= kWarp);

  const PrefillAttention& op;
  const Tile& tile;
  KvRing ring;
  int kv_head;

  // Part 0: keys, 1: values.
  __device__ void Copy(int at, int part, char* to, ArrivalBarrier* full) const {
    const int in_tile = Lane() / KvRing::kPanels;
    const int panel = Lane() % KvRing::kPanels;
    const int position = at + in_tile * kKvBlock;
    if (Lane() == 0) {
      const int first = max(at, tile.begin) / kKvBlock;
      const int last = (min(at + kTile, tile.end) - 1) / kKvBlock;
      ExpectBytes(full, (last - first + 1) * kKvBlock * KvRing::kPanels * KvRing::kPanelBytes);
    }
    __syncwarp();
    if (Lane() >= kCopies || position >= tile.end || position + kKvBlock <= tile.begin) return;
    const int64_t page =
        op.batch.page_tables[tile.slot * op.batch.page_table_stride + position / op.kv.page_size];
    const char* block = op.kv.Block(page, kv_head, position % op.kv.page_size) +
                        part * KvValuesByte(kHeadDim, false);
    BulkCopy(to + panel * KvRing::kPanelStride + in_tile * kKvBlock * KvRing::kPanelBytes,
             block + panel * kKvBlock * KvRing::kPanelBytes, kKvBlock * KvRing::kPanelBytes, full);
  }

  __device__ void Work() const {
    RingPlace<KvRing::kStages> place;
    for (int at = tile.begin / kTile * kTile; at < tile.end; at += kTile) {
      WaitFor(&ring.keys_empty[place.stage], place.parity ^ 1);
      Copy(at, 0, ring.Keys(place.stage), &ring.keys_full[place.stage]);
      WaitFor(&ring.values_empty[place.stage], place.parity ^ 1);
      Copy(at, 1, ring.Values(place.stage), &ring.values_full[place.stage]);
      place.Next();
    }
  }
};

// The third warpgroup, of an int8 cache: a lane copies one of a tile's eight blocks, then all
// threads widen keys and values into the ring.
template <typename T, int kHeadDim>
struct WideningFetcher {
  using KvRing = Ring<T, kHeadDim, true>;

  const PrefillAttention& op;
  const Tile& tile;
  KvRing ring;
  int kv_head;
  ArrivalBarrier* arrived;  // [kArriving]

  __device__ static int thread() { return static_cast<int>(threadIdx.x) - kWorkers * kGroup; }

  // By the first warp.
  __device__ void Copy(int at, int stage) const {
    constexpr int kBlockBytes = KvBlockBytes(kHeadDim, true);
    const int position = at + Lane() * kKvBlock;
    const bool wanted =
        Lane() < kTileBlocks && position < tile.end && position + kKvBlock > tile.begin;
    const unsigned all = __ballot_sync(0xffffffffu, wanted);
    if (Lane() == 0) ExpectBytes(&arrived[stage], __popc(all) * kBlockBytes);
    __syncwarp();
    if (!wanted) return;
    const int64_t page =
        op.batch.page_tables[tile.slot * op.batch.page_table_stride + position / op.kv.page_size];
    BulkCopy(ring.Arriving(stage) + Lane() * kBlockBytes,
             op.kv.Block(page, kv_head, position % op.kv.page_size), kBlockBytes, &arrived[stage]);
  }

  __device__ void WidenPart(const char* from, bool values, char* to, ArrivalBarrier* full) const {
    const auto place = [&](int i, int panel) {
      return reinterpret_cast<T*>(to) + (panel * kTile + i * 8) * KvPanelCols(kHeadDim);
    };
    WidenTile<T, kHeadDim, kTile, kGroup>(from, values, thread(), place);
    FenceBeforeProducts();
    __syncwarp();
    if (Lane() == 0) Arrive(full);
  }

  __device__ void Work() const {
    const int first = tile.begin / kTile * kTile;
    if (thread() < kWarp) {
      for (int i = 0; i < KvRing::kArriving && first + i * kTile < tile.end; ++i) {
        Copy(first + i * kTile, i);
      }
    }
    RingPlace<KvRing::kStages> place;
    RingPlace<KvRing::kArriving> from;
    for (int at = first; at < tile.end; at += kTile) {
      const char* blocks = ring.Arriving(from.stage);
      WaitFor(&arrived[from.stage], from.parity);
      WaitFor(&ring.keys_empty[place.stage], place.parity ^ 1);
      float* scales = ring.Scales(place.stage);
      CopyScales<T, kHeadDim, kTile>(blocks, at, tile.begin, tile.end, thread(), scales,
                                     scales + kTile);
      WidenPart(blocks, false, ring.Keys(place.stage), &ring.keys_full[place.stage]);
      WaitFor(&ring.values_empty[place.stage], place.parity ^ 1);
      WidenPart(blocks, true, ring.Values(place.stage), &ring.values_full[place.stage]);
      asm volatile("bar.sync 2, %0;" ::"n"(kGroup) : "memory");
      const int next = at + KvRing::kArriving * kTile;
      if (thread() < kWarp && next < tile.end) Copy(next, from.stage);
      place.Next();
      from.Next();
    }
  }
};

// One of the warpgroups with 64 rows.
template <typename T, int kHeadDim, bool kInt8>
struct Worker {
  using KvRing = Ring<T, kHeadDim, kInt8>;

  const PrefillAttention& op;
  const Tile& tile;
  KvRing ring;
  int kv_head;
  int group;
  uint32_t q[kHeadDim / 16][4];
  int sees_from[2];  // this lane's two rows see [sees_from, sees_to)
  int sees_to[2];
  BlockScores s[kTileBlocks];
  uint32_t weights[kTileBlocks][4];
  float o[kHeadDim / 8][4];
  OnlineSoftmax softmax;

  // This lane's row of the sequence.
  __device__ int Row(int half) const {
    return tile.first_row + static_cast<int>(threadIdx.x) / kWarp * 16 + Lane() / 4 + half * 8;
  }
  __device__ int64_t Offset(int row, int64_t stride) const {
    return (tile.tokens_at + row / group) * stride +
           (int64_t{kv_head} * group + row % group) * kHeadDim;
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
        const T* pair = head + k * 16 + Lane() % 4 * 2;
        q[k][half] = real ? *reinterpret_cast<const uint32_t*>(pair) : 0;
        q[k][half + 2] = real ? *reinterpret_cast<const uint32_t*>(pair + 8) : 0;
      }
    }
  }

  // All scores, and all sums, as products take them.
  __device__ auto& Scores() { return reinterpret_cast<float(&)[kTile / 2]>(s); }
  __device__ auto& Sums() { return reinterpret_cast<float(&)[kHeadDim / 2]>(o); }

  // s = q * keys^T.
  __device__ void StartScores(const char* keys) {
    const uint32_t address = SharedAddress(keys);
    auto& d = Scores();
    Pin(d);
    Pin(q);
    BeginProducts();
#pragma unroll
    for (int k = 0; k < kHeadDim / 16; ++k) {
      const int column_bytes = k * 16 * static_cast<int>(sizeof(T));
      const int at = column_bytes / KvRing::kPanelBytes * KvRing::kPanelStride +
                     column_bytes % KvRing::kPanelBytes;
      Wgmma<T, true>::Add(d, q[k], Descriptor(address + at, KvRing::kPanelBytes, 16), k > 0);
    }
    CommitProducts();
  }

  // o += weights * values.
  __device__ void StartValues(const char* values) {
    const uint32_t address = SharedAddress(values);
    auto& d = Sums();
    Pin(d);
    Pin(weights);
    BeginProducts();
#pragma unroll
    for (int b = 0; b < kTileBlocks; ++b) {
      Wgmma<T, false>::Add(d, weights[b],
                           Descriptor(address + b * kKvBlock * KvRing::kPanelBytes,
                                      KvRing::kPanelBytes, KvRing::kPanelStride));
    }
    CommitProducts();
  }

  // Scores of the tile at `at` become weights; s is free afterwards, once o may be touched.
  __device__ void Weigh(int at) {
    // Of two rows the lower one sees less at the end, and more at the begin.
    if (__any_sync(0xffffffffu, at + kTile > sees_to[0] || at < sees_from[1])) {
#pragma unroll
      for (int b = 0; b < kTileBlocks; ++b) {
        MaskScores(s[b], at + b * kKvBlock, sees_from, sees_to);
      }
    }
    softmax.Weigh(s, op.scale * kLog2E);
  }
  // `stage`: of the keys.
  __device__ void KeepWeights(int stage) {
    softmax.Shrink(o);
#pragma unroll
    for (int b = 0; b < kTileBlocks; ++b) {
      if constexpr (kInt8) ScalePositions(s[b], ring.Scales(stage) + kTile + b * kKvBlock);
      RoundWeights<T>(s[b], weights[b]);
    }
    if (kInt8) Release(&ring.keys_empty[stage]);
  }
  // The scores are there. Scales stay with the keys until KeepWeights.
  __device__ void TakeScores(int stage) {
    Pin(Scores());
    if constexpr (kInt8) {
#pragma unroll
      for (int b = 0; b < kTileBlocks; ++b) {
        ScalePositions(s[b], ring.Scales(stage) + b * kKvBlock);
      }
    } else {
      Release(&ring.keys_empty[stage]);
    }
  }

  // Positions that nobody sees may hold anything, and a weight of 0 does not hide a NaN. All
  // working threads.
  __device__ void ClearValues(char* values, int at) {
    if (kInt8) return;  // their scales are 0
    constexpr int kChunks = kHeadDim / kKvChunk;
    constexpr int kWorking = kWorkers * kGroup;
    for (int i = static_cast<int>(threadIdx.x); i < kTile * kChunks; i += kWorking) {
      const int row = i / kChunks;
      if (at + row >= tile.begin && at + row < tile.end) continue;
      const int chunk = i % kChunks;  // where it is swizzled to does not matter
      constexpr int kPanelChunks = KvRing::kPanelBytes / 16;
      *reinterpret_cast<uint4*>(values + chunk / kPanelChunks * KvRing::kPanelStride +
                                row * KvRing::kPanelBytes + chunk % kPanelChunks * 16) =
          make_uint4(0, 0, 0, 0);
    }
    FenceBeforeBulkCopy();
    asm volatile("bar.sync 1, %0;" ::"n"(kWorking) : "memory");
  }

  __device__ void Write() {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float inverse = 1.0f / QuadSum(softmax.sum[half]);
      if (Row(half) >= tile.rows) continue;
      T* out = static_cast<T*>(op.out) + Offset(Row(half), op.out_stride) + Lane() % 4 * 2;
#pragma unroll
      for (int d = 0; d < kHeadDim / 8; ++d) {
        *reinterpret_cast<uint32_t*>(out + d * 8) =
            RoundedPair<T>(o[d][2 * half] * inverse, o[d][2 * half + 1] * inverse);
      }
    }
  }

  __device__ void Release(ArrivalBarrier* empty) {
    __syncwarp();
    if (Lane() == 0) Arrive(empty);
  }

  // While the values of one tile are multiplied, the scores of the next one are made and weighed.
  __device__ void Work() {
    LoadQueries();
    int at = tile.begin / kTile * kTile;
    RingPlace<KvRing::kStages> next;  // of keys
    RingPlace<KvRing::kStages> place;
    WaitFor(&ring.keys_full[0], 0);
    StartScores(ring.Keys(0));
    WaitForProducts<0>();
    TakeScores(0);
    next.Next();
    Weigh(at);
#pragma unroll
    for (int d = 0; d < kHeadDim / 8; ++d) {
#pragma unroll
      for (int i = 0; i < 4; ++i) o[d][i] = 0;
    }
    KeepWeights(0);
    if (at < tile.begin) {
      WaitFor(&ring.values_full[0], 0);
      ClearValues(ring.Values(0), at);
    }
    for (; at + kTile < tile.end; at += kTile) {
      WaitFor(&ring.keys_full[next.stage], next.parity);
      StartScores(ring.Keys(next.stage));
      WaitFor(&ring.values_full[place.stage], place.parity);
      StartValues(ring.Values(place.stage));
      WaitForProducts<1>();
      TakeScores(next.stage);
      Weigh(at + kTile);
      WaitForProducts<0>();
      Pin(Sums());
      Release(&ring.values_empty[place.stage]);
      KeepWeights(next.stage);
      next.Next();
      place.Next();
    }
    WaitFor(&ring.values_full[place.stage], place.parity);
    if (at + kTile > tile.end) ClearValues(ring.Values(place.stage), at);
    StartValues(ring.Values(place.stage));
    WaitForProducts<0>();
    Pin(Sums());
    Write();
  }
};

// Blocks (tiles, KV heads), one a multiprocessor. Two warpgroups have 64 rows each, in registers:
// queries, scores, weights, sums. A warp of the third one streams keys and values through a
// ring of tiles of 128 positions; all of its warps widen those of int8.
template <typename T, int kHeadDim, bool kInt8>
__global__ void __launch_bounds__(kThreads, 1)
    WarpgroupKernel(const __grid_constant__ PrefillAttention op) {
  if constexpr (kHopper) {
    using KvRing = Ring<T, kHeadDim, kInt8>;
    extern __shared__ __align__(1024) char shared[];
    __shared__ ArrivalBarrier full[2 * KvRing::kStages];
    __shared__ ArrivalBarrier empty[2 * KvRing::kStages];
    __shared__ ArrivalBarrier arrived[kInt8 ? KvRing::kArriving : 1];
    WaitForPrevious();
    LetNextBegin();
    const int group = op.heads / op.kv.kv_heads;
    Tile tile = FindTile<kRows>(op, group, static_cast<int>(blockIdx.x));
    if (tile.sequence < 0) return;
    SeePositions<kRows>(op, group, tile);
    if (threadIdx.x == 0) {
      for (ArrivalBarrier& barrier : full) InitBarrier(&barrier, kInt8 ? kGroup / kWarp : 1);
      for (ArrivalBarrier& barrier : arrived) InitBarrier(&barrier);
      for (ArrivalBarrier& barrier : empty) InitBarrier(&barrier, kWorkers * kGroup / kWarp);
      PublishBarriers();
    }
    __syncthreads();
    const auto kv_head = static_cast<int>(blockIdx.y);
    const KvRing ring = {shared, full, empty, full + KvRing::kStages, empty + KvRing::kStages};
    if (threadIdx.x >= kWorkers * kGroup) {
      asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kFetchRegisters<kInt8>));
      if constexpr (kInt8) {
        WideningFetcher<T, kHeadDim>{op, tile, ring, kv_head, arrived}.Work();
      } else if (threadIdx.x < kWorkers * kGroup + kWarp) {
        Fetcher<T, kHeadDim>{op, tile, ring, kv_head}.Work();
      }
    } else {
      asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kWorkRegisters<kInt8>));
      Worker<T, kHeadDim, kInt8> worker = {op, tile, ring, kv_head, group};
      worker.Work();
    }
  }
}

template <typename T, int kHeadDim, bool kInt8>
absl::Status Start(const PrefillAttention& op, Stream stream) {
  constexpr size_t kSharedBytes = Ring<T, kHeadDim, kInt8>::kBytes;
  return Launch(
      WarpgroupKernel<T, kHeadDim, kInt8>,
      {"PrefillAttention by warpgroups",
       dim3(static_cast<unsigned>(MostTiles<kRows>(op)), static_cast<unsigned>(op.kv.kv_heads)),
       dim3(kThreads), kSharedBytes},
      stream, op);
}

}  // namespace

absl::Status EnqueueWarpgroupForm(const PrefillAttention& op, Stream stream) {
  SKEIN_RETURN_IF_ERROR(NeedHopper("PrefillAttention by warpgroups"));
  return WithKvShape(op, [&]<typename T, int kHeadDim, bool kInt8>() {
    return Start<T, kHeadDim, kInt8>(op, stream);
  });
}

const void* KernelOfPrefillAttentionWgmma() {
  return reinterpret_cast<const void*>(WarpgroupKernel<__nv_bfloat16, 128, false>);
}

}  // namespace skein::kernels::cuda
