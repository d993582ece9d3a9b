#include <algorithm>

#include "absl/strings/str_cat.h"
#include "kernels/cuda/bulk_copy.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/linear_tile.cuh"
#include "kernels/cuda/load_kernels.h"
#include "kernels/cuda/mma.cuh"
#include "kernels/cuda/present_words.cuh"
#include "kernels/cuda/stream_k_linear.h"
#include "kernels/cuda/stream_k_sizes.h"
#include "kernels/cuda/tensor_map.h"
#include "kernels/cuda/vectors.cuh"
#include "kernels/cuda/wgmma.cuh"

namespace skein::kernels::cuda {
namespace {

struct Work {
  CUtensorMap weight;
  CUtensorMap in;
  StreamKLinear op;
  int32_t steps;  // of k
  int64_t units;  // tiles, times steps
};

// Units [begin, end) are a block's.
struct Share {
  int64_t begin;
  int64_t end;
};
__device__ inline Share ShareOf(const Work& work, int block, int blocks) {
  return {work.units * block / blocks, work.units * (block + 1) / blocks};
}

// Steps [first, end) of a tile.
struct Segment {
  int tile;
  int first;
  int end;
};

// A block's segments, the last one first: only that one can end inside of its tile. The block that
// has a tile's last step finishes it. So it waits for blocks of lower numbers only, and for what
// they do first: all of them end, however many run at once, as long as blocks begin in the order of
// their numbers. CUDA does not promise that; Hopper does it.
class Segments {
 public:
  __device__ Segments(const Work& work, Share share)
      : steps_(work.steps), begin_(share.begin), end_(share.end) {}
  __device__ bool Next(Segment& segment) {
    if (end_ <= begin_) return false;
    segment.tile = static_cast<int>((end_ - 1) / steps_);
    const int64_t tile_begin = int64_t{segment.tile} * steps_;
    segment.first = static_cast<int>(max(begin_, tile_begin) - tile_begin);
    segment.end = static_cast<int>(end_ - tile_begin);
    end_ = tile_begin + segment.first;
    return true;
  }

 private:
  int steps_;
  int64_t begin_;
  int64_t end_;
};

// The same, step by step.
class Steps {
 public:
  __device__ Steps(const Work& work, Share share)
      : segments_(work, share), left_(static_cast<int>(share.end - share.begin)) {}
  __device__ bool left() const { return left_ > 0; }
  __device__ TilePlace Next() {
    if (next_ == segment_.end) {
      segments_.Next(segment_);
      next_ = segment_.first;
    }
    --left_;
    return {next_++ * kStepK, segment_.tile * kTileRows, 0};
  }

 private:
  Segments segments_;
  int left_;
  Segment segment_ = {0, 0, 0};
  int next_ = 0;
};

// A thread of a multiplying group.
template <typename T, typename Out, typename F>
struct Multiplier : TileMultiplier<T, F> {
  using Base = TileMultiplier<T, F>;
  using Base::group;
  using Base::sums;
  static constexpr int kQuads = Base::kSums / 4;

  const Work& work;

  __device__ Multiplier(const Work& of, const char* ring, TileBarriers<F>& shared, int group)
      : Base{ring, shared, group}, work(of) {}

  __device__ int thread() const { return static_cast<int>(threadIdx.x) % kGroupThreads; }

  __device__ uint4 Words(int quad) const {
    const float* const four = sums + 4 * quad;
    return {PresentWord(four[0]), PresentWord(four[1]), PresentWord(four[2]), PresentWord(four[3])};
  }
  __device__ void AddWords(int quad, const uint4& words) {
    float* const four = sums + 4 * quad;
    four[0] += __uint_as_float(words.x);
    four[1] += __uint_as_float(words.y);
    four[2] += __uint_as_float(words.z);
    four[3] += __uint_as_float(words.w);
  }

  // Where a block leaves the group's sums of a tile's part: this thread's words.
  __device__ uint4* Part(int block) const {
    const int64_t index = int64_t{block} * kGroups + group;
    return static_cast<uint4*>(work.op.workspace) + index * (kStreamKPartialFloats / 4) + thread();
  }

  __device__ void Leave(int block) const {
    uint4* const part = Part(block);
#pragma unroll
    for (int i = 0; i < kQuads; ++i) StoreWords(part + i * kGroupThreads, Words(i));
  }

  // Adds what the `count` blocks before this one have left, the nearest first, and leaves nothing
  // in its place. Each word tells by itself that it has come: no fence, no flag.
  __device__ void Collect(int block, int count) {
    // On their way at once: as many words as there are registers for.
    constexpr int kParts = kQuads < 4 ? 4 : 16 / kQuads;
    for (int first = 1; first <= count; first += kParts) {
      uint4 words[kParts][kQuads];
#pragma unroll
      for (int part = 0; part < kParts; ++part) {
        if (first + part > count) break;
#pragma unroll
        for (int i = 0; i < kQuads; ++i) {
          words[part][i] = LoadWords<uint4>(Part(block - first - part) + i * kGroupThreads);
        }
      }
#pragma unroll
      for (int part = 0; part < kParts; ++part) {
        if (first + part > count) break;
#pragma unroll
        for (int i = 0; i < kQuads; ++i) {
          uint4* const at = Part(block - first - part) + i * kGroupThreads;
          while (!Present(words[part][i])) words[part][i] = LoadWords<uint4>(at);
          StoreWords(at, make_uint4(kAbsent, kAbsent, kAbsent, kAbsent));
          AddWords(i, words[part][i]);
        }
      }
    }
  }

  __device__ void Run(int block, int blocks) {
    const Share share = ShareOf(work, block, blocks);
    Segments segments(work, share);
    for (Segment segment; segments.Next(segment);) {
      this->template Multiply</*kShort=*/false>((segment.end - segment.first) * kStepK);
      if (segment.end < work.steps) {
        Leave(block);
        continue;
      }
      const int64_t tile_begin = int64_t{segment.tile} * work.steps;
      int first = block;
      while (ShareOf(work, first, blocks).begin > tile_begin) --first;
      Collect(block, block - first);
      WriteSums<Out>(TileOut::Of(work.op), *this, /*first_row=*/0,
                     int64_t{segment.tile} * kTileRows);
    }
  }
};

template <typename T, typename Out, typename F>
__global__ void __launch_bounds__(kTileThreads, 1)
    StreamKKernel(const __grid_constant__ Work work) {
  if constexpr (kHopper) {
    extern __shared__ char unaligned[];
    __shared__ TileBarriers<F> shared;
    char* const ring = RingOf(unaligned);
    const int warp = static_cast<int>(threadIdx.x) / kWarp;
    const auto block = static_cast<int>(blockIdx.x);
    const auto blocks = static_cast<int>(gridDim.x);
    if (threadIdx.x == 0) {
      PrefetchMap(work.weight);
      PrefetchMap(work.in);
      shared.Init();
    }
    __syncthreads();
    if (warp == kGroups * kGroupWarps) {
      if (Lane() == 0) {
        TileFetcher<F, Steps>{work.weight, work.in, ring, shared, EvictFirst()}.Run(
            Steps(work, ShareOf(work, block, blocks)));
      }
      __syncwarp();
    } else {
      WaitForPrevious();
      LetNextBegin();
      Multiplier<T, Out, F>(work, ring, shared, warp / kGroupWarps).Run(block, blocks);
    }
  }
}

template <typename T, typename Out, typename F>
absl::Status Start(const StreamKLinear& op, Stream stream) {
  Work work = {.op = op};
  SKEIN_ASSIGN_OR_RETURN(work.weight,
                         MapOf(op.dtype, op.weight, op.n, op.k, op.weight_stride, kTileRows));
  SKEIN_ASSIGN_OR_RETURN(work.in, MapOf(op.dtype, op.in, op.rows, op.k, op.in_stride, F::kRows));
  work.steps = static_cast<int32_t>((op.k + kStepK - 1) / kStepK);
  work.units = (op.n + kTileRows - 1) / kTileRows * work.steps;
  const auto blocks = static_cast<unsigned>(std::min<int64_t>(op.multiprocessors, work.units));
  return Launch(StreamKKernel<T, Out, F>,
                {"StreamKLinear", dim3(blocks), dim3(kTileThreads), F::kLaunchBytes}, stream, work);
}

template <typename T, typename Out>
absl::Status StartForRows(const StreamKLinear& op, Stream stream) {
  if (op.rows <= 8) return Start<T, Out, Form<8>>(op, stream);
  if (op.rows <= 16) return Start<T, Out, Form<16>>(op, stream);
  return Start<T, Out, Form<32>>(op, stream);
}

}  // namespace

absl::Status Enqueue(const StreamKLinear& op, Stream stream) {
  if (op.rows < 0 || op.rows > kStreamKRows || op.n <= 0 || op.k <= 0 ||
      (op.n | op.k | op.in_stride | op.weight_stride | op.out_stride) % kVector != 0) {
    return absl::InvalidArgumentError(absl::StrCat("StreamKLinear of ", op.rows, " rows, ", op.n,
                                                   " by ", op.k, ": to ", kStreamKRows,
                                                   " rows; sizes and strides are multiples of 8"));
  }
  if (op.swiglu && (op.n % 16 != 0 || op.out_dtype != op.dtype)) {
    return absl::InvalidArgumentError(
        "StreamKLinear with SwiGlu: a multiple of 16 weight rows, no F32");
  }
  if (op.multiprocessors <= 0 || op.workspace == nullptr) {
    return absl::InvalidArgumentError("StreamKLinear: the device's multiprocessors, a workspace");
  }
  if (!Aligned16({op.in, op.weight, op.out, op.workspace})) {
    return absl::InvalidArgumentError("StreamKLinear: operands are 16-byte aligned");
  }
  if (op.rows == 0) return absl::OkStatus();
  if (op.out == op.in) {
    return absl::InvalidArgumentError(
        "StreamKLinear in place: blocks still read what others write");
  }
  SKEIN_RETURN_IF_ERROR(NeedHopper("StreamKLinear"));
  return With16BitType(op.dtype, [&]<typename T>(TypeTag<T>) {
    return WithFloatOr<T>(op.out_dtype, op.dtype, [&]<typename Out>(TypeTag<Out>) {
      return StartForRows<T, Out>(op, stream);
    });
  });
}

const void* KernelOfStreamKLinear() {
  return reinterpret_cast<const void*>(StreamKKernel<__nv_bfloat16, float, Form<8>>);
}

}  // namespace skein::kernels::cuda
