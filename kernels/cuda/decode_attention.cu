#include <algorithm>

#include "absl/strings/str_cat.h"
#include "kernels/cuda/bulk_copy.cuh"
#include "kernels/cuda/decode_attention.h"
#include "kernels/cuda/decode_combine.cuh"
#include "kernels/cuda/decode_plan.cuh"
#include "kernels/cuda/decode_tile.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/load_kernels.h"
#include "kernels/cuda/vectors.cuh"

namespace skein::kernels::cuda {
namespace {

constexpr int kThreads = kDecodeWarps * kWarp;
// A warp's ring. In all they have what a multiprocessor of Hopper has, 227 KB, or one of an A100,
// 163 KB, less what blocks need besides.
constexpr int RingBytes(bool hopper) { return (hopper ? 24 : 16) * 1024; }
constexpr int kRingBytes = RingBytes(kHopper);  // on the device

// Where a warp is in its run. All lanes have the same, but for page_ids.
struct Cursor {
  int index;  // of the sequence
  Sequence sequence;
  int kv_head;
  int block;  // of the sequence

  __device__ void NextHead(const Sequence* sequences, int kv_heads) {
    if (++kv_head == kv_heads) {
      kv_head = 0;
      do {
        sequence = LoadRecord(sequences + ++index);
      } while (sequence.length == 0);
    }
    block = sequence.first;
  }
};

// Page ids of a sequence, 32 at a time, one a lane. The next 32 are on their way meanwhile.
struct PageIds {
  int index = -1;  // of the sequence
  int first = 0;
  int id = 0;
  int next = 0;  // of the page 32 further on

  __device__ static int Load(const PagedBatch& batch, const Sequence& of, int page, int page_size) {
    const int pages = (of.length + page_size - 1) / page_size;
    if (page >= pages) return 0;
    return __ldcg(batch.page_tables + of.slot * batch.page_table_stride + page);
  }
  __device__ int Get(const PagedBatch& batch, const Cursor& at, int page, int page_size) {
    const bool same = index == at.index && page >= first;
    if (!same || page >= first + kWarp) {
      const bool known = same && page < first + 2 * kWarp;
      index = at.index;
      first = known ? first + kWarp : page;
      id = known ? next : Load(batch, at.sequence, first + Lane(), page_size);
      next = Load(batch, at.sequence, first + kWarp + Lane(), page_size);
    }
    return __shfl_sync(0xffffffffu, id, page - first);
  }
};

template <typename T, int kHeadDim, bool kInt8>
struct DecodeWarp {
  static constexpr int kBlockBytes = KvBlockBytes(kHeadDim, kInt8);
  static constexpr int kStages = kRingBytes / kBlockBytes;
  // Blocks that are worked on together, so that their chains of products and exponents overlap:
  // those of int8 are there too soon for one after the other.
  static constexpr int kTogether = !kInt8 ? 1 : (kHeadDim == 64 ? 4 : 2);

  using Tile = DecodeTile<T, kHeadDim, kInt8>;
  using State = typename Tile::State;

  const DecodeAttention& op;
  PlanView plan;
  char* ring;                // [kStages] blocks, this warp's
  ArrivalBarrier* barriers;  // [kStages]
  Cursor fill;
  int page;  // of the sequence, where `fill` is, and the block in it
  int in_page;
  PageIds page_ids;
  Tile tile;

  __device__ int lane() const { return static_cast<int>(threadIdx.x) % kWarp; }
  __device__ int group() const { return op.heads / op.kv.kv_heads; }

  __device__ int page_blocks() const { return op.kv.page_size / kKvBlock; }

  __device__ void FindPage() {
    page = fill.block / page_blocks();
    in_page = fill.block % page_blocks();
  }
  // On to the next KV head, where this one has no block left.
  __device__ void FindBlock() {
    if (fill.block < EndBlock(fill.sequence)) return;
    fill.NextHead(plan.sequences, op.kv.kv_heads);
    FindPage();
  }

  // Starts the copy of the next block into a stage.
  __device__ void Fill(int stage) {
    FindBlock();
    const int64_t id = page_ids.Get(op.batch, fill, page, op.kv.page_size);
    const int64_t block = op.kv.BlockNumber(id, fill.kv_head, in_page * kKvBlock);
    WarpCopy</*kOnce=*/true>(ring + stage * kBlockBytes,
                             static_cast<const char*>(op.kv.data) + block * kBlockBytes,
                             lane() == 0 ? kBlockBytes : 0, kBlockBytes, &barriers[stage]);
    ++fill.block;
    if (++in_page == page_blocks()) in_page = 0, ++page;
  }

  __device__ void LoadQueries(const Cursor& at) {
    tile.LoadQueries(static_cast<const T*>(op.q) + at.sequence.row * op.q_stride +
                         int64_t{at.kv_head} * group() * kHeadDim,
                     kHeadDim, group());
  }

  // Adds kBlocks blocks, from `stage` on.
  template <int kBlocks>
  __device__ void Attend(const Cursor& at, int stage, State& state) {
    char* blocks[kBlocks];
#pragma unroll
    for (int b = 0; b < kBlocks; ++b) {
      const int place = stage + b < kStages ? stage + b : stage + b - kStages;
      blocks[b] = ring + place * kBlockBytes;
    }
    const int end = at.sequence.length;
    const int begin = op.window > 0 ? max(0, end - op.window) : 0;
    tile.Attend(blocks, at.block * kKvBlock, begin, end, op.scale, state);
  }

  // The KV head's result, where this worker has all of it.
  __device__ void Write(const Cursor& at, const State& state) {
    T* out = static_cast<T*>(op.out) + at.sequence.row * op.out_stride +
             int64_t{at.kv_head} * group() * kHeadDim;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float inverse = 1.0f / QuadSum(state.softmax.sum[half]);
      const int row = lane() / 4 + half * 8;
      if (row >= group()) continue;
      Tile::ForEachPair(state, half, [&](int column, float first, float second) {
        *reinterpret_cast<uint32_t*>(out + row * kHeadDim + column) =
            RoundedPair<T>(first * inverse, second * inverse);
      });
    }
  }

  // Partial `index`: rows of sums, then of (largest exponent, sum of weights).
  __device__ void WritePartial(int index, const State& state) {
    float* partial =
        static_cast<float*>(op.partials) + int64_t{index} * group() * PartialFloats(kHeadDim);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float sum = QuadSum(state.softmax.sum[half]);
      const int row = lane() / 4 + half * 8;
      if (row >= group()) continue;
      Tile::ForEachPair(state, half, [&](int column, float first, float second) {
        *reinterpret_cast<float2*>(partial + row * kHeadDim + column) = make_float2(first, second);
      });
      if (lane() % 4 == 0) {
        reinterpret_cast<float2*>(partial + group() * kHeadDim)[row] =
            make_float2(state.softmax.largest[half] * (op.scale * kLog2E), sum);  // as Weigh has it
      }
    }
  }

  // What the kernel before may be writing still: the last position's block.
  __device__ bool NextIsOld() {
    FindBlock();
    return fill.block + 1 < EndBlock(fill.sequence);
  }

  __device__ void Work(int worker) {
    if (!op.early) WaitForPrevious();
    const Run run = LoadRecord(plan.runs + worker);
    Cursor at = {};
    int filled = 0;
    const int first_fills = min(kStages, run.count);
    if (run.count > 0) {
      at = {run.sequence, LoadRecord(plan.sequences + run.sequence), run.kv_head, 0};
      at.block = at.sequence.first + run.unit;
      fill = at;
      FindPage();
      if (op.early) {
        for (; filled < first_fills && NextIsOld(); ++filled) Fill(filled);
      }
    }
    if (op.early) WaitForPrevious();
    LetNextBegin();
    if (run.count == 0) return;
    for (; filled < first_fills; ++filled) Fill(filled);

    bool whole = run.unit == 0;  // of this KV head's blocks none was another worker's
    RingPlace<kStages> place;
    int left = run.count;
    while (left > 0) {
      LoadQueries(at);
      State state;
      const int end = EndBlock(at.sequence);
      while (left > 0 && at.block < end) {
        const int count = min(left, end - at.block) < kTogether ? 1 : kTogether;
        RingPlace<kStages> next = place;
        for (int i = 0; i < count; ++i, next.Next()) WaitFor(&barriers[next.stage], next.parity);
        if (count == kTogether) {
          Attend<kTogether>(at, place.stage, state);
        } else {
          Attend<1>(at, place.stage, state);
        }
        __syncwarp();
        for (int i = 0; i < count; ++i, place.Next(), ++at.block, --left) {
          if (left > kStages) Fill(place.stage);
        }
      }
      if (whole && at.block == end) {
        Write(at, state);
      } else {
        WritePartial(2 * worker + (whole ? 1 : 0), state);
      }
      whole = true;
      if (left > 0) at.NextHead(plan.sequences, op.kv.kv_heads);
    }
  }
};

// Workers are numbered across the blocks first, so that little work is spread over all of them.
template <typename T, int kHeadDim, bool kInt8>
__global__ void __launch_bounds__(kThreads, 1)
    DecodeKernel(const __grid_constant__ DecodeAttention op) {
  extern __shared__ __align__(1024) char shared[];
  using Warp = DecodeWarp<T, kHeadDim, kInt8>;
  __shared__ ArrivalBarrier barriers[kDecodeWarps][Warp::kStages];
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  if (threadIdx.x % kWarp == 0) {
    for (int i = 0; i < Warp::kStages; ++i) InitBarrier(&barriers[warp][i], kCopyArrivals);
    PublishBarriers();
  }
  __syncwarp();
  Warp work = {op, ViewOf(op.plan, DecodeWorkers(op.multiprocessors)), shared + warp * kRingBytes,
               barriers[warp]};
  work.Work(warp * static_cast<int>(gridDim.x) + static_cast<int>(blockIdx.x));
}

template <typename T, int kHeadDim>
absl::Status Start(const DecodeAttention& op, Stream stream) {
  const auto blocks = static_cast<unsigned>(op.multiprocessors);
  SKEIN_RETURN_IF_ERROR(
      Launch(op.kv.int8 ? DecodeKernel<T, kHeadDim, true> : DecodeKernel<T, kHeadDim, false>,
             {"DecodeAttention", dim3(blocks), dim3(kThreads),
              size_t{kDecodeWarps} * RingBytes(HopperForms())},
             stream, op));
  // Every boundary between two workers splits one KV head at most.
  const int workers = DecodeWorkers(op.multiprocessors);
  const int heads = op.batch.sequences * op.kv.kv_heads;
  const auto splits = static_cast<unsigned>(std::min(workers - 1, heads));
  const auto group = static_cast<unsigned>(op.heads / op.kv.kv_heads);
  // Fewer workers have parts of a head, on average, than a thread has loads in flight.
  constexpr int kFew = 4;
  if (heads * kFew >= workers) {
    return Launch(CombineFewKernel<T, kHeadDim>,
                  {"DecodeAttention's sums", dim3(splits), dim3(kCombineThreads)}, stream, op);
  }
  return Launch(CombineManyKernel<T, kHeadDim>,
                {"DecodeAttention's sums", dim3(splits, group), dim3(kCombineThreads),
                 static_cast<size_t>(workers) * sizeof(float)},
                stream, op);
}

absl::Status Validate(const DecodeAttention& op) {
  if (!KvHeadDimIsSupported(op.kv.head_dim) || op.kv.page_size <= 0 ||
      op.kv.page_size % kKvBlock != 0) {
    return absl::UnimplementedError(
        absl::StrCat("DecodeAttention with heads of ", op.kv.head_dim, " and pages of ",
                     op.kv.page_size, ": heads of 64, 96 or 128, pages of a multiple of 16"));
  }
  if (op.kv.kv_heads <= 0 || op.heads <= 0 || op.heads % op.kv.kv_heads != 0 ||
      op.heads / op.kv.kv_heads > kMaxGroup) {
    return absl::UnimplementedError(absl::StrCat("DecodeAttention of ", op.heads, " heads over ",
                                                 op.kv.kv_heads, " KV heads: 1 to 16 for each"));
  }
  if (!(op.scale > 0) || op.multiprocessors <= 0 || (op.q_stride | op.out_stride) % kVector != 0) {
    return absl::InvalidArgumentError(
        "DecodeAttention: a positive scale, strides of multiples of 8, and the device's "
        "multiprocessors");
  }
  if (!Aligned16({op.kv.data, op.plan, op.partials, op.q, op.out})) {
    return absl::InvalidArgumentError("DecodeAttention: operands are 16-byte aligned");
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status Enqueue(const DecodeAttention& op, Stream stream) {
  SKEIN_RETURN_IF_ERROR(Validate(op));
  if (op.batch.sequences == 0) return absl::OkStatus();
  return With16BitType(op.dtype, [&]<typename T>(TypeTag<T>) {
    switch (op.kv.head_dim) {
      case 64:
        return Start<T, 64>(op, stream);
      case 96:
        return Start<T, 96>(op, stream);
      default:
        return Start<T, 128>(op, stream);
    }
  });
}

const void* KernelOfDecodeAttention() {
  return reinterpret_cast<const void*>(DecodeKernel<__nv_bfloat16, 128, false>);
}

}  // namespace skein::kernels::cuda
