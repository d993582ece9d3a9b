#include "absl/strings/str_cat.h"
#include "kernels/cuda/adjust_row.cuh"
#include "kernels/cuda/device_draws.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/load_kernels.h"
#include "kernels/cuda/row_in_cluster.cuh"

namespace skein::kernels::cuda {
namespace {

constexpr double kLn2 = 0.69314718055994531;
// Where weights round to 0: ln 2^(kWeightBits + 1).
constexpr float kRangeOfWeights = 31.2f;

__device__ double ToWeight(uint64_t weight) {
  return static_cast<double>(weight) / static_cast<double>(uint64_t{1} << kWeightBits);
}

// Tokens of a block: a multiple of 4, so that loads are of 16 bytes.
__host__ __device__ int64_t TokensOfBlock(int64_t tokens) {
  return ((tokens + kRowBlocks - 1) / kRowBlocks + 3) / 4 * 4;
}

struct Drawer {
  const SampledDraws& op;
  const SampledDraw& draw;
  const float* const raw;  // this block's logits, as they came
  RowInCluster& row;
  LogitOrder order = {0, 0};
  float mu = 0;

  __device__ void Load() const {
    constexpr int kStep = 4 * kRowThreads;
    constexpr int kInFlight = 4;
    float* const logits = LogitsOfRow();
    const int end = row.count;
    for (int i = 4 * static_cast<int>(threadIdx.x); i < end; i += kInFlight * kStep) {
      float4 loaded[kInFlight];
#pragma unroll
      for (int l = 0; l < kInFlight; ++l) {
        // The row's stride covers a load that begins in it.
        const int at = i + l * kStep;
        if (at < end) loaded[l] = __ldg(reinterpret_cast<const float4*>(raw + at));
      }
#pragma unroll
      for (int l = 0; l < kInFlight; ++l) {
        const int at = i + l * kStep;
        if (at < end) *reinterpret_cast<float4*>(logits + at) = loaded[l];
      }
    }
    __syncthreads();
  }

  // The weight of the kept tokens that weigh at least so much.
  __device__ uint64_t HeavyWeight(double least) const {
    const TokenFilter keep = row.filter;
    const TokenWeight weigh = row.weight;
    uint64_t sums[1] = {0};
    row.ForEachLogit([&](float logit, int32_t id) {
      if (keep.Keeps(logit, id) && weigh(logit) >= least) sums[0] += weigh.Integer(logit);
    });
    row.Sum(sums);
    return sums[0];
  }

  // Where a share of what was counted, whose weight is `sum`, is reached.
  template <typename Order>
  __device__ Reached ReachShare(const Order& in, double share, uint64_t sum) const {
    const auto target = static_cast<uint64_t>(ceil(share * static_cast<double>(sum)));
    return row.Reach<true>(in, min(max(target, uint64_t{1}), sum));
  }

  __device__ void KeepTypical(float range) const {
    const TokenFilter keep = row.filter;
    const TokenWeight weigh = row.weight;
    double sums[2] = {0, 0};
    row.ForEachLogit([&](float logit, int32_t id) {
      const double weight = keep.Keeps(logit, id) ? weigh(logit) : 0;
      if (weight == 0) return;  // of infinite logits, too
      sums[0] += weight;
      sums[1] += weight * double{logit};
    });
    row.Sum(sums);
    const double mean = sums[1] / sums[0];
    const double above = double{row.largest} - mean;
    const DistanceOrder distances = {
        mean, BucketsPerLogit(static_cast<float>(fmax(above, double{range} - above)))};
    row.Count<true>(distances);
    row.filter.last_typical = ReachShare(distances, draw.typical_p, row.total).place;
    row.filter.distances = distances;
    row.filter.typical = true;
  }

  __device__ double LargestKeptWeight() const {
    const TokenFilter keep = row.filter;
    if (!keep.typical) return 1;
    uint64_t most[1] = {0};
    row.ForEachLogit([&](float logit, int32_t id) {
      if (keep.Keeps(logit, id)) most[0] = max(most[0], uint64_t{~DescendingKey(logit)});
    });
    row.Maximum(most);
    return row.weight(LogitOf(~static_cast<uint32_t>(most[0])));
  }

  // The weight of what top_k, typical_p, top_p and min_p leave.
  __device__ uint64_t Truncate(float range) const {
    if (draw.top_k > 0 && draw.top_k < op.of.tokens) {
      row.Count<false>(order);
      row.filter.last = row.Reach<false>(order, static_cast<uint64_t>(draw.top_k)).place;
    }
    if (draw.typical_p < 1) KeepTypical(range);
    row.Count<true>(order);
    uint64_t sum = row.total;
    if (draw.top_p < 1) sum = ReachShare(order, draw.top_p, sum).weight;
    if (draw.min_p > 0) {
      sum = min(sum, HeavyWeight(double{draw.min_p} * LargestKeptWeight()));
    }
    return sum;
  }

  // The weight of the tokens that surprise no more than mu, or 1 for the most likely one.
  __device__ uint64_t KeepUnsurprising() const {
    row.Count<true>(order);
    const double least = mu > 0 ? ExpOf(double{-mu} * kLn2) * ToWeight(row.total) : 2;
    return least > 1 ? 1 : HeavyWeight(least);
  }

  __device__ int32_t MostLikely() const {
    uint64_t ids[1] = {0};
    const float largest = row.largest;
    row.ForEachLogit([&](float logit, int32_t id) {
      if (logit == largest) ids[0] = max(ids[0], ~static_cast<uint64_t>(id));
    });
    row.Maximum(ids);
    return static_cast<int32_t>(~ids[0]);
  }

  __device__ int32_t DrawByChance(float range) {
    row.weight.scale = 1.0 / double{draw.temperature};
    range = fminf(range, kRangeOfWeights * draw.temperature);
    order = {row.largest, BucketsPerLogit(range)};
    const bool mirostat = draw.mirostat_tau > 0;
    const uint64_t sum = mirostat ? KeepUnsurprising() : Truncate(range);
    const double before = double{draw.uniform} * static_cast<double>(sum);
    const uint64_t target = min(static_cast<uint64_t>(before) + 1, sum);
    const Reached reached = row.Reach<true>(order, target);
    if (mirostat) {
      const float logit = LogitOf(static_cast<uint32_t>(reached.place >> kIdBits));
      // Of one token alone the sum is its weight.
      const double all = sum == 1 ? 1 : ToWeight(sum);
      const double surprise = log2(all) - log2(row.weight(logit));
      mu = static_cast<float>(double{mu} -
                              double{draw.mirostat_eta} * (surprise - double{draw.mirostat_tau}));
    }
    return static_cast<int32_t>(reached.place & ((Place{1} << kIdBits) - 1));
  }

  // What is told of a token beside its id: logits are as they came, `range` is FindLargest's.
  __device__ void Tell(int32_t id, float range, DeviceDraw& out) const {
    const bool finite = isfinite(row.largest);
    row.weight.scale = 1;
    row.filter = {};
    double sums[1] = {0};
    if (finite) {
      const TokenWeight weigh = row.weight;
      row.ForEachLogit([&](float logit, int32_t) { sums[0] += weigh(logit); });
      row.Sum(sums);
    }
    if (const int i = id - row.first; threadIdx.x == 0 && i >= 0 && i < row.count) {
      out.told.largest = row.largest;
      out.told.sum = sums[0];
      out.told.logit = LogitsOfRow()[i];
    }
    if (!finite || draw.logprobs == 0) return;
    const LogitOrder likely = {row.largest, BucketsPerLogit(fminf(range, kRangeOfWeights))};
    row.Count<false>(likely);
    const auto most = static_cast<uint64_t>(min(int64_t{draw.logprobs}, op.of.tokens));
    const Place last = row.Reach<false>(likely, most).place;
    uint32_t* const told = &SharedOfRow().told;
    if (threadIdx.x == 0) *told = 0;
    row.cluster.sync();
    row.ForEachLogit([&](float logit, int32_t token) {
      if (PlaceOf(DescendingKey(logit), token) > last) return;
      out.told.top[atomicAdd(row.OfBlock(told, 0), 1u)] = {logit, token};
    });
  }

  __device__ void Work(DeviceDraw& out, const uint32_t* mask) {
    Load();
    if (draw.token >= 0) {
      Tell(draw.token, row.FindLargest(), out);
      row.cluster.sync();  // nobody's memory goes while another reads it
      return;
    }
    const RowAdjuster adjuster = {draw, op.slots, raw, row, op.of.tokens};
    const bool adjusted = adjuster.Adjust(mask);
    const float range = row.FindLargest();
    const bool drawable = isfinite(row.largest);
    const float largest = row.largest;
    if (draw.mirostat_tau > 0) mu = op.slots.mus[draw.slot];
    int32_t id = -1;
    if (drawable) id = draw.temperature > 0 ? DrawByChance(range) : MostLikely();
    if (draw.logprobs >= 0 && drawable) {
      if (adjusted) Load();
      Tell(id, adjusted ? row.FindLargest() : range, out);
    }
    row.cluster.sync();  // nobody's memory goes while another reads it
    if (threadIdx.x != 0 || row.cluster.block_rank() != 0) return;
    out.largest = largest;
    out.id = drawable ? op.of.first_id + id : -1;
    out.mu = mu;
    if (!draw.leaves) return;
    if (draw.mirostat_tau > 0) op.slots.mus[draw.slot] = mu;
    // Any token serves where the draw fails: what comes of it is void.
    const int32_t newest = max(out.id, 0);
    if (op.of.newest_tokens != nullptr) op.of.newest_tokens[draw.slot] = newest;
    const int64_t length = int64_t{draw.prompt} + draw.output;
    if (draw.remembers() && length < op.slots.history_stride) {
      op.slots.histories[draw.slot * op.slots.history_stride + length] = newest;
    }
  }
};

// Clusters (draw) of blocks (part of the row).
__global__ void SKEIN_CLUSTER(kRowBlocks) __launch_bounds__(kRowThreads, 2)
    SampledDrawsKernel(const __grid_constant__ SampledDraws op) {
  WaitForPrevious();
  LetNextBegin();
  const int index = static_cast<int>(blockIdx.x) / kRowBlocks;
  const SampledDraw draw = op.rows[index];
  const int64_t each = TokensOfBlock(op.of.tokens);
  const int64_t first = min(each * (blockIdx.x % kRowBlocks), op.of.tokens);
  const int count = static_cast<int>(min(each, op.of.tokens - first));
  RowInCluster row = {static_cast<int32_t>(first), count};
  Drawer drawer = {
      op, draw,
      op.of.logits + int64_t{op.in_order ? index : draw.row} * op.of.logits_stride + first, row};
  drawer.Work(op.of.drawn[index], op.masks == nullptr ? nullptr : op.masks + index * op.mask_words);
}

}  // namespace

absl::Status Enqueue(const SampledDraws& op, Stream stream) {
  if (op.of.tokens <= 0 || op.of.tokens > kMaxSampledTokens || op.of.logits_stride % 4 != 0 ||
      op.of.logits_stride < op.of.tokens) {
    return absl::InvalidArgumentError(absl::StrCat("SampledDraws of ", op.of.tokens,
                                                   " tokens: rows of multiples of 4, to ",
                                                   kMaxSampledTokens, " tokens"));
  }
  if (!Aligned16({op.of.logits})) {
    return absl::InvalidArgumentError("SampledDraws: logits are 16-byte aligned");
  }
  if (op.draws == 0) return absl::OkStatus();
  SKEIN_RETURN_IF_ERROR(NeedHopper("SampledDraws"));
  const LaunchShape shape = {
      "SampledDraws", dim3(static_cast<unsigned>(op.draws * kRowBlocks)), dim3(kRowThreads),
      sizeof(RowShared) + static_cast<size_t>(TokensOfBlock(op.of.tokens)) * sizeof(float)};
  return Launch(SampledDrawsKernel, shape, stream, op);
}

const void* KernelOfSampledDraws() { return reinterpret_cast<const void*>(SampledDrawsKernel); }

}  // namespace skein::kernels::cuda
