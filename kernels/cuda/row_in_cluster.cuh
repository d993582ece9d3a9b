// A row of logits in the shared memory of a cluster of blocks, and how tokens are found there by
// their place in an order, without sorting: weights are summed in buckets of neighbours, and only
// the bucket in which a sum is reached is looked at by token. Weights are integers, so that a sum
// has one value whatever the order in which threads add.
//
// All threads of the cluster call all functions of RowInCluster together, unless they say
// otherwise. Loops over logits keep what they need in registers: it is copied before them.
#pragma once

#include <cooperative_groups.h>

#include <cfloat>
#include <cstdint>

#include "kernels/cuda/forms.h"

namespace skein::kernels::cuda {

#if SKEIN_HOPPER
#define SKEIN_CLUSTER(blocks) __cluster_dims__(blocks, 1, 1)
using Cluster = cooperative_groups::cluster_group;
__device__ inline Cluster ThisCluster() { return cooperative_groups::this_cluster(); }
#else
// There are no clusters: kernels of these compile, and are never launched.
#define SKEIN_CLUSTER(blocks)
struct Cluster {
  __device__ void sync() const {}
  __device__ unsigned block_rank() const { return 0; }
  template <typename T>
  __device__ T* map_shared_rank(T* own, unsigned /*block*/) const {
    return own;
  }
};
__device__ inline Cluster ThisCluster() { return {}; }
#endif

inline constexpr int kRowBlocks = 8;
inline constexpr int kRowThreads = 512;
inline constexpr int kRowWarps = kRowThreads / 32;

// Buckets of an order, of which each block adds up a part; tokens that are looked at one by one.
inline constexpr int kBuckets = 1024;
inline constexpr int kOwnedBuckets = kBuckets / kRowBlocks;
inline constexpr int kListed = kRowThreads;

// Of weights, which are at most 1: a row of 2^18.6 tokens has sums below 2^63. A token that rounds
// to 0 is beyond all that 24 random bits can reach.
inline constexpr int kWeightBits = 44;
inline constexpr int kLimbBits = 16;  // a block's 2^15.6 tokens add up in 32
inline constexpr int kLimbs = 3;

// A token's place in an order: a key of 32 bits, then its id.
using Place = uint64_t;
inline constexpr int kIdBits = 19;
inline constexpr Place kLastPlace = ~Place{0};

// Ascending where floats descend; see kernels/sampling.
__device__ inline uint32_t DescendingKey(float logit) {
  const uint32_t bits = __float_as_uint(logit + 0.0f);
  return bits & 0x80000000u ? bits : bits ^ 0x7fffffffu;
}
__device__ inline float LogitOf(uint32_t key) {
  return __uint_as_float(key & 0x80000000u ? key : key ^ 0x7fffffffu);
}

// e^x for x <= 0 as kernels/sampling has it, but for the last bit.
__device__ inline double ExpOf(double x) {
  const double clamped = fmax(x, -709.0895657128241);
  constexpr double kRounder = 0x1.8p52;
  const double shifted = fma(clamped, 1.4426950408889634, kRounder);
  const double n = shifted - kRounder;
  const double r = fma(n, -0x1.a39ef35793c76p-33, fma(n, -0x1.62e42fee00000p-1, clamped));
  double p = 1.0 / 362880;
  p = fma(p, r, 1.0 / 40320);
  p = fma(p, r, 1.0 / 5040);
  p = fma(p, r, 1.0 / 720);
  p = fma(p, r, 1.0 / 120);
  p = fma(p, r, 1.0 / 24);
  p = fma(p, r, 1.0 / 6);
  p = fma(p, r, 0.5);
  p = fma(p, r, 1.0);
  p = fma(p, r, 1.0);
  const auto bits = static_cast<uint64_t>(__double_as_longlong(shifted));
  return p * __longlong_as_double(static_cast<long long>((bits + 1023) << 52));
}

struct ListedToken {
  Place place;
  uint64_t weight;
};

// Where a sum over tokens in order reaches a target.
struct Reached {
  Place place;
  uint64_t weight;  // of all tokens up to it
};

struct alignas(16) RowShared {
  uint32_t limbs[kLimbs][kBuckets];
  // Of the buckets that this block adds up: what they hold, and what those before them in it do.
  uint64_t weights[kOwnedBuckets], weights_before[kOwnedBuckets];
  ListedToken own_list[kListed];  // of this block's tokens
  ListedToken list[kListed];      // of all
  uint64_t of_warps[kRowWarps][2];
  uint64_t of_block[2][2];  // exchanges alternate: the others still read the last one's
  struct Hit {
    int bucket;
    uint64_t weight_before;
  } hit;
  Reached reached;
  uint32_t listed;  // by this block
  uint32_t told;    // used by the draw, in the first block
};

// The dynamic shared memory of a block: RowShared, then its part of the logits.
extern __shared__ __align__(16) unsigned char row_memory[];
__device__ inline RowShared& SharedOfRow() { return *reinterpret_cast<RowShared*>(row_memory); }
__device__ inline float* LogitsOfRow() {
  return reinterpret_cast<float*>(row_memory + sizeof(RowShared));
}

// Of a logit's distance from the largest one, or from another value.
struct LogitOrder {
  float largest;
  float buckets_per_logit;
  __device__ int Bucket(float logit) const {
    return static_cast<int>(fminf((largest - logit) * buckets_per_logit, kBuckets - 1));
  }
  __device__ uint32_t Key(float logit) const { return DescendingKey(logit); }
};
struct DistanceOrder {
  double mean;
  float buckets_per_logit;
  __device__ float Distance(float logit) const {
    return static_cast<float>(fabs(double{logit} - mean));
  }
  __device__ int Bucket(float logit) const {
    return static_cast<int>(fminf(Distance(logit) * buckets_per_logit, kBuckets - 1));
  }
  __device__ uint32_t Key(float logit) const { return __float_as_uint(Distance(logit)); }
};
// For a range of logits that is to fill the buckets.
__device__ inline float BucketsPerLogit(float range) {
  return fminf(static_cast<float>(kBuckets) / fmaxf(range, FLT_MIN), FLT_MAX);
}

__device__ inline Place PlaceOf(uint32_t key, int32_t id) {
  return Place{key} << kIdBits | static_cast<uint32_t>(id);
}

// What is left to take: tokens up to `last` by logit, and of these the ones close to a mean.
struct TokenFilter {
  Place last = kLastPlace;
  bool typical = false;
  DistanceOrder distances = {0, 0};
  Place last_typical = kLastPlace;

  __device__ bool Keeps(float logit, int32_t id) const {
    if (last != kLastPlace && PlaceOf(DescendingKey(logit), id) > last) return false;
    return !typical || PlaceOf(distances.Key(logit), id) <= last_typical;
  }
};

// e^((logit - largest) * scale).
struct TokenWeight {
  double largest = 0;
  double scale = 1;

  __device__ double operator()(float logit) const {
    return ExpOf((double{logit} - largest) * scale);
  }
  __device__ uint64_t Integer(float logit) const {
    return __double2ull_rn((*this)(logit) * static_cast<double>(uint64_t{1} << kWeightBits));
  }
};

struct RowInCluster {
  const int32_t first;  // token of this block
  const int count;      // of its tokens
  Cluster cluster = ThisCluster();
  int exchanges = 0;
  float largest = 0;
  TokenWeight weight;
  TokenFilter filter;
  // Of what Count counted.
  TokenFilter counted;
  uint64_t total = 0;
  uint64_t before_block = 0;  // weight in the buckets of the blocks before
  bool counts_order = false;  // buckets are those of an order, not of places

  // Calls f(logit, id).
  template <typename F>
  __device__ void ForEachLogit(const F& f) const {
    const float* const logits = LogitsOfRow();
    const int32_t id = first;
    const int end = count;
#pragma unroll 4
    for (int i = static_cast<int>(threadIdx.x); i < end; i += kRowThreads) f(logits[i], id + i);
  }
  template <typename T>
  __device__ T* OfBlock(T* own, int block) const {
    return cluster.map_shared_rank(own, static_cast<unsigned>(block));
  }

  // Joins what every thread has, in one order; all get the result. T has 8 bytes.
  template <int kValues, typename T, typename Op>
  __device__ void Join(T (&values)[kValues], const Op& op) {
    RowShared& shared = SharedOfRow();
    const int warp = static_cast<int>(threadIdx.x) / 32;
#pragma unroll
    for (int v = 0; v < kValues; ++v) {
      for (int lanes = 16; lanes > 0; lanes /= 2) {
        values[v] = op(values[v], __shfl_xor_sync(~0u, values[v], lanes));
      }
      if (threadIdx.x % 32 == 0) reinterpret_cast<T&>(shared.of_warps[warp][v]) = values[v];
    }
    __syncthreads();
    uint64_t* const own = shared.of_block[exchanges++ % 2];
    if (threadIdx.x < kValues) {
      T joined = reinterpret_cast<T&>(shared.of_warps[0][threadIdx.x]);
      for (int w = 1; w < kRowWarps; ++w) {
        joined = op(joined, reinterpret_cast<T&>(shared.of_warps[w][threadIdx.x]));
      }
      reinterpret_cast<T&>(own[threadIdx.x]) = joined;
    }
    cluster.sync();
#pragma unroll
    for (int v = 0; v < kValues; ++v) {
      values[v] = reinterpret_cast<T&>(OfBlock(own, 0)[v]);
      for (int block = 1; block < kRowBlocks; ++block) {
        values[v] = op(values[v], reinterpret_cast<T&>(OfBlock(own, block)[v]));
      }
    }
  }
  template <int kValues, typename T>
  __device__ void Sum(T (&values)[kValues]) {
    Join(values, [](T a, T b) { return a + b; });
  }
  template <int kValues>
  __device__ void Maximum(uint64_t (&values)[kValues]) {
    Join(values, [](uint64_t a, uint64_t b) { return a > b ? a : b; });
  }

  // Finds the largest logit, NaN where one is, and the distance of the smallest finite one.
  __device__ float FindLargest() {
    uint32_t least_key = ~0u;
    uint32_t most_key = 0;
    bool nan = false;
    ForEachLogit([&](float logit, int32_t) {
      const uint32_t key = DescendingKey(logit);
      least_key = min(least_key, key);
      if (isfinite(logit)) most_key = max(most_key, key);
      nan |= isnan(logit);
    });
    constexpr uint64_t kNan = uint64_t{1} << 32;
    uint64_t ends[2] = {nan ? kNan : uint64_t{~least_key}, most_key};
    Maximum(ends);
    largest = ends[0] >= kNan ? NAN : LogitOf(~static_cast<uint32_t>(ends[0]));
    weight.largest = double{largest};
    return largest - LogitOf(static_cast<uint32_t>(ends[1]));
  }

  // ---- Buckets ----

  __device__ static void Clear() {
    uint32_t* const limbs = SharedOfRow().limbs[0];
    for (int i = static_cast<int>(threadIdx.x); i < kLimbs * kBuckets; i += kRowThreads) {
      limbs[i] = 0;
    }
    __syncthreads();
  }
  // Any thread.
  __device__ static void Put(int bucket, uint64_t weight) {
#pragma unroll
    for (int l = 0; l < kLimbs; ++l) {
      const auto limb = static_cast<uint32_t>(weight >> (l * kLimbBits)) & ((1u << kLimbBits) - 1);
      if (limb != 0) atomicAdd(&SharedOfRow().limbs[l][bucket], limb);
    }
  }
  // Adds up what the blocks have put, each block a part of the buckets.
  __device__ void AddUp() {
    RowShared& shared = SharedOfRow();
    cluster.sync();
    const int t = static_cast<int>(threadIdx.x);
    const int lane = t % 32;
    const int warp = t / 32;
    const int rank = static_cast<int>(cluster.block_rank());
    uint64_t own = 0;
    if (t < kOwnedBuckets) {
#pragma unroll
      for (int block = 0; block < kRowBlocks; ++block) {
        for (int l = 0; l < kLimbs; ++l) {
          const uint32_t limb = OfBlock(shared.limbs[l], block)[rank * kOwnedBuckets + t];
          own += uint64_t{limb} << (l * kLimbBits);
        }
      }
    }
    uint64_t sum = own;  // up to this thread's, in the warp
    for (int step = 1; step < 32; step *= 2) {
      const uint64_t other = __shfl_up_sync(~0u, sum, step);
      if (lane >= step) sum += other;
    }
    if (lane == 31) shared.of_warps[warp][0] = sum;
    __syncthreads();
    uint64_t all = 0;
    for (int w = 0; w < kOwnedBuckets / 32; ++w) {
      if (w == warp) sum += all;
      all += shared.of_warps[w][0];
    }
    if (t < kOwnedBuckets) {
      shared.weights[t] = own;
      shared.weights_before[t] = sum - own;
    }
    uint64_t* const exchanged = shared.of_block[exchanges++ % 2];
    if (t == 0) exchanged[0] = all;
    cluster.sync();
    total = 0;
    for (int block = 0; block < kRowBlocks; ++block) {
      if (block == rank) before_block = total;
      total += OfBlock(exchanged, block)[0];
    }
  }

  // Adds up what is kept, by its buckets in an order; `total` is its weight then. A token weighs 1
  // where it is not to be weighed.
  template <bool kWeighs, typename Order>
  __device__ void Count(const Order order) {
    counted = filter;
    Clear();
    {
      const TokenFilter keep = filter;
      const TokenWeight weigh = weight;
      ForEachLogit([&](float logit, int32_t id) {
        if (keep.Keeps(logit, id)) Put(order.Bucket(logit), kWeighs ? weigh.Integer(logit) : 1);
      });
    }
    AddUp();
    counts_order = true;
  }

  // The bucket in which what lies before and in it reaches a target.
  __device__ RowShared::Hit FindBucket(uint64_t target, uint64_t before) {
    RowShared& shared = SharedOfRow();
    const int t = static_cast<int>(threadIdx.x);
    if (t < kOwnedBuckets) {
      const RowShared::Hit hit = {static_cast<int>(cluster.block_rank()) * kOwnedBuckets + t,
                                  before + before_block + shared.weights_before[t]};
      if (hit.weight_before < target && hit.weight_before + shared.weights[t] >= target) {
        for (int block = 0; block < kRowBlocks; ++block) *OfBlock(&shared.hit, block) = hit;
      }
    }
    cluster.sync();
    return shared.hit;
  }

  // Lists the tokens that inside(logit, place) takes in every block, and returns how many there
  // are; the list is whole where there are kListed at most.
  template <bool kWeighs, typename Order, typename F>
  __device__ uint32_t List(const Order order, const F& inside) {
    RowShared& shared = SharedOfRow();
    // The others have read the last one: they have been where the bucket was found.
    if (threadIdx.x == 0) shared.listed = 0;
    __syncthreads();
    {
      const TokenWeight weigh = weight;
      ForEachLogit([&](float logit, int32_t id) {
        const Place place = PlaceOf(order.Key(logit), id);
        if (!inside(logit, id, place)) return;
        const uint32_t at = atomicAdd(&SharedOfRow().listed, 1u);
        if (at < kListed) {
          SharedOfRow().own_list[at] = {place, kWeighs ? weigh.Integer(logit) : 1};
        }
      });
    }
    cluster.sync();
    const int t = static_cast<int>(threadIdx.x);
    uint32_t all = 0;
    for (int block = 0; block < kRowBlocks; ++block) {
      const uint32_t listed = *OfBlock(&shared.listed, block);
      const uint32_t end = all + listed;
      if (t >= all && t < end && end <= kListed) {
        shared.list[t] = OfBlock(shared.own_list, block)[t - all];
      }
      all = end;
    }
    __syncthreads();
    return all;
  }

  // The first token, in the order that was counted, up to which weights sum to `target`: from 1 to
  // the sum of all. Not inlined: the registers of two blocks fit a multiprocessor.
  template <bool kWeighs, typename Order>
  __device__ __noinline__ Reached Reach(const Order order, uint64_t target) {
    if (!counts_order) Count<kWeighs>(order);
    RowShared& shared = SharedOfRow();
    RowShared::Hit hit = FindBucket(target, 0);
    const int bucket = hit.bucket;
    const TokenFilter keep = counted;
    // The bucket's places, as far as they are known.
    Place begin = 0;
    Place end = kLastPlace;
    const auto inside = [&](float logit, int32_t id, Place place) {
      return order.Bucket(logit) == bucket && place >= begin && place <= end &&
             keep.Keeps(logit, id);
    };
    uint32_t listed = List<kWeighs>(order, inside);
    while (listed > kListed) {
      uint64_t ends[2] = {0, 0};
      ForEachLogit([&](float logit, int32_t id) {
        const Place place = PlaceOf(order.Key(logit), id);
        if (!inside(logit, id, place)) return;
        ends[0] = max(ends[0], ~place);
        ends[1] = max(ends[1], place);
      });
      Maximum(ends);
      begin = ~ends[0];
      end = ends[1];
      const int shift = max(0, 64 - __clzll(static_cast<long long>(end - begin)) - 10);
      const TokenWeight weigh = weight;
      Clear();
      ForEachLogit([&](float logit, int32_t id) {
        const Place place = PlaceOf(order.Key(logit), id);
        if (!inside(logit, id, place)) return;
        Put(static_cast<int>((place - begin) >> shift), kWeighs ? weigh.Integer(logit) : 1);
      });
      AddUp();
      counts_order = false;
      hit = FindBucket(target, hit.weight_before);
      begin += static_cast<Place>(hit.bucket) << shift;
      end = min(end, begin + ((Place{1} << shift) - 1));
      listed = List<kWeighs>(order, inside);
    }
    if (threadIdx.x < listed) {
      const ListedToken own = shared.list[threadIdx.x];
      uint64_t sum = hit.weight_before;
#pragma unroll 4
      for (uint32_t j = 0; j < listed; ++j) {
        const ListedToken other = shared.list[j];
        sum += other.place <= own.place ? other.weight : 0;
      }
      if (sum >= target && sum - own.weight < target) shared.reached = {own.place, sum};
    }
    __syncthreads();
    return shared.reached;
  }
};

}  // namespace skein::kernels::cuda
