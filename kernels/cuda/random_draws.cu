#include <cooperative_groups.h>

#include "absl/strings/str_cat.h"
#include "kernels/cuda/device_draws.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/load_kernels.h"

namespace skein::kernels::cuda {
namespace {

namespace cg = cooperative_groups;

// A row is spread over the shared memory of a cluster, and read from the device's memory once.
constexpr int kBlocks = 8;
constexpr int kThreads = 512;
constexpr int kWarp = 32;
constexpr int kWarps = kThreads / kWarp;
// Parts of a range of keys that a round of the search tells apart: 3 bits.
constexpr int kBuckets = 8;

// Ascending where floats descend; see kernels/sampling.
__device__ uint32_t DescendingKey(float logit) {
  const uint32_t bits = __float_as_uint(logit + 0.0f);
  return bits & 0x80000000u ? bits : bits ^ 0x7fffffffu;
}

struct Shared {
  double of_warps[kWarps][kBuckets];
  double of_block[2][kBuckets];  // rounds alternate: the other blocks still read the last one's
  double total[kBuckets];
  int counts[kWarps];
};

// Where a sum over tokens in order reaches a target: tokens with this logit's key do it.
struct Reached {
  uint32_t key = 0;
  double before = 0;  // the sum up to them
  double each = 0;    // what one of them adds
  int64_t count = 0;
};

struct Drawer {
  const RandomDraws& op;
  const RandomDraw draw;
  float* logits;  // this block's, [count]
  Shared& shared;
  cg::cluster_group cluster;
  int64_t first;  // of the row
  int count;
  double scale;  // of logits
  int round = 0;
  float largest = 0;

  // Adds up what every thread of the cluster has, in one order; all get the sums.
  __device__ void Sum(double (&values)[kBuckets]) {
    const int warp = static_cast<int>(threadIdx.x) / kWarp;
#pragma unroll
    for (int b = 0; b < kBuckets; ++b) {
      for (int lanes = kWarp / 2; lanes > 0; lanes /= 2) {
        values[b] += __shfl_xor_sync(~0u, values[b], lanes);
      }
      if (threadIdx.x % kWarp == 0) shared.of_warps[warp][b] = values[b];
    }
    __syncthreads();
    double* const own = shared.of_block[round % 2];
    if (threadIdx.x < kBuckets) {
      double sum = 0;
      for (int w = 0; w < kWarps; ++w) sum += shared.of_warps[w][threadIdx.x];
      own[threadIdx.x] = sum;
    }
    cluster.sync();
    if (threadIdx.x < kBuckets) {
      double sum = 0;
      for (int block = 0; block < kBlocks; ++block) {
        sum += cluster.map_shared_rank(own, block)[threadIdx.x];
      }
      shared.total[threadIdx.x] = sum;
    }
    __syncthreads();
#pragma unroll
    for (int b = 0; b < kBuckets; ++b) values[b] = shared.total[b];
    ++round;
  }

  __device__ double WeightOf(float logit) const {
    return exp((double{logit} - double{largest}) * scale);
  }
  template <typename F>
  __device__ void ForEachLogit(const F& f) const {
    for (int i = static_cast<int>(threadIdx.x); i < count; i += kThreads) f(logits[i]);
  }

  // The largest logit; NaN where one is.
  __device__ void FindLargest() {
    float own = -INFINITY;
    bool nan = false;
    ForEachLogit([&](float logit) {
      own = fmaxf(own, logit);
      nan |= isnan(logit);
    });
    // A sum keeps NaN, and the maximum goes by the blocks' own.
    for (int lanes = kWarp / 2; lanes > 0; lanes /= 2) {
      own = fmaxf(own, __shfl_xor_sync(~0u, own, lanes));
    }
    nan = __syncthreads_or(nan);
    const int warp = static_cast<int>(threadIdx.x) / kWarp;
    if (threadIdx.x % kWarp == 0) shared.of_warps[warp][0] = own;
    __syncthreads();
    if (threadIdx.x == 0) {
      double most = -INFINITY;
      for (int w = 0; w < kWarps; ++w) most = fmax(most, shared.of_warps[w][0]);
      shared.of_block[round % 2][0] = nan ? NAN : most;
    }
    cluster.sync();
    double most = -INFINITY;
    bool any = false;
    for (int block = 0; block < kBlocks; ++block) {
      const double other = cluster.map_shared_rank(shared.of_block[round % 2], block)[0];
      any |= isnan(other);
      most = fmax(most, other);
    }
    ++round;
    largest = any ? NAN : static_cast<float>(most);
    __syncthreads();
  }

  // The first token, in order, up to which measure(logit) sums to `target` or, with `more`, exceeds
  // it; the last one where rounding leaves the sum short.
  template <typename Measure>
  __device__ Reached Reach(double target, bool more, const Measure& measure) {
    Reached reached;
    uint32_t base = 0;
    double inside = 0;
    for (int shift = 29; shift >= 0; shift = shift > 2 ? shift - 3 : (shift == 2 ? 0 : -1)) {
      // Of 32 bits the last round tells 2 apart.
      const uint32_t width = shift == 29 ? 0 : uint32_t{1} << (shift == 0 ? 2 : shift + 3);
      double sums[kBuckets] = {};
      ForEachLogit([&](float logit) {
        const uint32_t key = DescendingKey(logit);
        const uint32_t offset = key - base;
        if (key < base || (width != 0 && offset >= width)) return;
        const uint32_t bucket = offset >> shift;
        const double value = measure(logit);
#pragma unroll
        for (uint32_t b = 0; b < kBuckets; ++b) sums[b] += bucket == b ? value : 0;
      });
      Sum(sums);
      int last = 0;
#pragma unroll
      for (int b = 0; b < kBuckets; ++b) last = sums[b] > 0 ? b : last;
      int hit = 0;
      double before = reached.before;
#pragma unroll
      for (int b = 0; b < kBuckets; ++b) {
        const double sum = before + sums[b];
        const bool there = more ? sum > target : sum >= target;
        if (hit == b && b < last && !there) {
          before = sum;
          ++hit;
        }
      }
#pragma unroll
      for (int b = 0; b < kBuckets; ++b) inside = hit == b ? sums[b] : inside;
      reached.before = before;
      base += static_cast<uint32_t>(hit) << shift;
    }
    reached.key = base;
    double tokens[kBuckets] = {};
    ForEachLogit([&](float logit) { tokens[0] += DescendingKey(logit) == base ? 1 : 0; });
    Sum(tokens);
    reached.count = static_cast<int64_t>(tokens[0]);
    reached.each = inside / tokens[0];
    return reached;
  }

  // Of the tokens that reach it, how many it takes.
  __device__ static int64_t Taken(const Reached& at, double target, bool more) {
    const double ratio = (target - at.before) / at.each;
    const double taken = more ? floor(ratio) + 1 : ceil(ratio);
    return static_cast<int64_t>(fmin(fmax(taken, 1.0), static_cast<double>(at.count)));
  }

  // The sum of what is left to draw from.
  __device__ double Restrict() {
    const auto weight = [this](float logit) { return WeightOf(logit); };
    double sums[kBuckets] = {};
    // Of all, and of those that min_p keeps: the largest weight is 1.
    ForEachLogit([&](float logit) {
      const double w = WeightOf(logit);
      sums[0] += w;
      sums[1] += w >= double{draw.min_p} ? w : 0;
    });
    Sum(sums);
    double sum = sums[0];
    if (draw.top_k > 0 && draw.top_k < op.of.tokens) {
      const Reached last = Reach(draw.top_k, /*more=*/false, [](float) { return 1.0; });
      const int64_t taken = Taken(last, draw.top_k, false);
      double kept[kBuckets] = {};
      ForEachLogit([&](float logit) {
        const uint32_t key = DescendingKey(logit);
        if (key < last.key) kept[0] += WeightOf(logit);
        // All alike: the mean of those that threads have is what each weighs.
        if (key == last.key) kept[1] = WeightOf(logit), kept[2] = 1;
      });
      Sum(kept);
      sum = kept[0] + static_cast<double>(taken) * (kept[1] / kept[2]);
    }
    if (draw.top_p < 1) {
      const double target = double{draw.top_p} * sum;
      const Reached last = Reach(target, /*more=*/false, weight);
      sum = last.before + static_cast<double>(Taken(last, target, false)) * last.each;
    }
    return draw.min_p > 0 ? fmin(sum, sums[1]) : sum;
  }

  // The id of the n-th token, from 1, that has this key; on the thread that has it, else -1.
  __device__ int32_t Find(uint32_t key, int64_t n) {
    // Threads have neighbouring tokens here.
    const int each = (count + kThreads - 1) / kThreads;
    const int begin = min(static_cast<int>(threadIdx.x) * each, count);
    const int end = min(begin + each, count);
    int own = 0;
    for (int i = begin; i < end; ++i) own += DescendingKey(logits[i]) == key ? 1 : 0;
    int before = own;  // in the warp, up to this thread
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    for (int step = 1; step < kWarp; step *= 2) {
      const int other = __shfl_up_sync(~0u, before, step);
      if (lane >= step) before += other;
    }
    const int warp = static_cast<int>(threadIdx.x) / kWarp;
    if (lane == kWarp - 1) shared.counts[warp] = before;
    __syncthreads();
    int all = 0;
    for (int w = 0; w < kWarps; ++w) {
      if (w == warp) before += all;
      all += shared.counts[w];
    }
    if (threadIdx.x == 0) shared.of_block[round % 2][0] = all;
    cluster.sync();
    int64_t place = before - own;  // tokens of the row before this thread's
    for (int block = 0; block < static_cast<int>(cluster.block_rank()); ++block) {
      place += static_cast<int64_t>(cluster.map_shared_rank(shared.of_block[round % 2], block)[0]);
    }
    ++round;
    if (n <= place || n > place + own) return -1;
    for (int i = begin; i < end; ++i) {
      if (DescendingKey(logits[i]) == key && ++place == n) {
        return op.of.first_id + static_cast<int32_t>(first) + i;
      }
    }
    return -1;
  }

  __device__ void Work(int index) {
    FindLargest();
    const bool drawable = isfinite(largest);
    int32_t id = -1;
    if (drawable) {  // in all threads of the cluster, or in none
      const double target = double{draw.uniform} * Restrict();
      const Reached at = Reach(target, /*more=*/true, [this](float l) { return WeightOf(l); });
      id = Find(at.key, Taken(at, target, true));
    }
    const bool tells = drawable ? id >= 0 : threadIdx.x == 0 && cluster.block_rank() == 0;
    if (tells) {
      op.of.drawn[index] = {largest, id};
      // Any token serves where the draw fails: what comes of it is void.
      if (op.of.newest_tokens != nullptr) op.of.newest_tokens[draw.slot] = max(id, 0);
    }
    cluster.sync();  // nobody's memory goes while another reads it
  }
};

// Clusters (draw) of blocks (part of the row).
__global__ void __cluster_dims__(kBlocks, 1, 1) __launch_bounds__(kThreads)
    RandomDrawsKernel(const __grid_constant__ RandomDraws op) {
  extern __shared__ __align__(16) float part[];
  __shared__ Shared shared;
  WaitForPrevious();
  LetNextBegin();
  const int index = static_cast<int>(blockIdx.x) / kBlocks;
  const RandomDraw draw = op.rows[index];
  const int64_t each = ((op.of.tokens + kBlocks - 1) / kBlocks + 3) / 4 * 4;
  const int64_t first = min(each * (blockIdx.x % kBlocks), op.of.tokens);
  const int count = static_cast<int>(min(each, op.of.tokens - first));
  const float* const row = op.of.logits + int64_t{draw.row} * op.of.logits_stride + first;
  // The row's stride covers a load that begins in it.
  for (int i = 4 * static_cast<int>(threadIdx.x); i < count; i += 4 * kThreads) {
    *reinterpret_cast<float4*>(part + i) = *reinterpret_cast<const float4*>(row + i);
  }
  __syncthreads();
  Drawer drawer = {
      op, draw, part, shared, cg::this_cluster(), first, count, 1.0 / double{draw.temperature}};
  drawer.Work(index);
}

}  // namespace

absl::Status Enqueue(const RandomDraws& op, Stream stream) {
  if (op.of.tokens <= 0 || op.of.tokens > kMaxRandomTokens || op.of.logits_stride % 4 != 0 ||
      op.of.logits_stride < op.of.tokens) {
    return absl::InvalidArgumentError(absl::StrCat("RandomDraws of ", op.of.tokens,
                                                   " tokens: rows of multiples of 4, to ",
                                                   kMaxRandomTokens, " tokens"));
  }
  if (!Aligned16({op.of.logits})) {
    return absl::InvalidArgumentError("RandomDraws: logits are 16-byte aligned");
  }
  if (op.draws == 0) return absl::OkStatus();
  const int64_t each = ((op.of.tokens + kBlocks - 1) / kBlocks + 3) / 4 * 4;
  const LaunchShape shape = {"RandomDraws", dim3(static_cast<unsigned>(op.draws * kBlocks)),
                             dim3(kThreads), static_cast<size_t>(each) * sizeof(float)};
  return Launch(RandomDrawsKernel, shape, stream, op);
}

const void* KernelOfRandomDraws() { return reinterpret_cast<const void*>(RandomDrawsKernel); }

}  // namespace skein::kernels::cuda
