#include "absl/strings/str_cat.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/top_logits.h"
#include "kernels/cuda/vectors.cuh"

namespace skein::kernels::cuda {
namespace {

constexpr int kThreads = 1024;
// Logits of a thread's load. Each of its places is a group: of so many groups' largest logits, the
// count-th largest is a limit that at least `count` logits reach, and few more.
constexpr int kPlaces = 4;
constexpr int kGroups = kThreads * kPlaces;
static_assert(kGroups == 4 * kMaxTopLogits);
// Tokens that may be sorted, as keys: descending logit, then id.
constexpr int kList = 4096;

// Ascending where floats descend; see kernels/sampling.
__device__ uint32_t DescendingKey(float logit) {
  const uint32_t bits = __float_as_uint(logit + 0.0f);
  return bits & 0x80000000u ? bits : bits ^ 0x7fffffffu;
}
__device__ float LogitOf(uint32_t key) {
  return __uint_as_float(key & 0x80000000u ? key : key ^ 0x7fffffffu);
}
// Of -infinity: no key of another logit is as large.
constexpr uint32_t kLastKey = 0xff800000u;
constexpr uint64_t kNoToken = ~uint64_t{0};

struct Shared {
  union {
    uint64_t list[kList];
    uint32_t groups[kGroups];
  };
  float scratch[kWarp];
  int listed;
};

// Puts a power of two of keys in ascending order.
template <typename Key>
__device__ void Sort(Key* keys, int count) {
  for (int run = 2; run <= count; run *= 2) {
    for (int step = run / 2; step > 0; step /= 2) {
      for (int i = static_cast<int>(threadIdx.x); i < count / 2; i += kThreads) {
        const int low = i / step * 2 * step + i % step;
        const int high = low + step;
        const bool ascending = (low & run) == 0;
        if ((keys[low] > keys[high]) == ascending) {
          const Key key = keys[low];
          keys[low] = keys[high];
          keys[high] = key;
        }
      }
      __syncthreads();
    }
  }
}

// Calls f(token, logit, place) for a thread's tokens, in order of token; place: of the load.
template <typename F>
__device__ void ForEachToken(const float* row, int64_t tokens, F&& f) {
  for (int64_t at = int64_t{threadIdx.x} * kPlaces; at < tokens; at += kGroups) {
    if (at + kPlaces <= tokens) {
      const float4 x = *reinterpret_cast<const float4*>(row + at);
      f(at, x.x, 0), f(at + 1, x.y, 1), f(at + 2, x.z, 2), f(at + 3, x.w, 3);
    } else {
#pragma unroll
      for (int i = 0; i < kPlaces; ++i) {
        if (at + i < tokens) f(at + i, row[at + i], i);
      }
    }
  }
}

__device__ uint64_t KeyOf(int64_t token, float logit) {
  return static_cast<uint64_t>(DescendingKey(logit)) << 32 | static_cast<uint64_t>(token);
}

// Lists all tokens with keys up to `limit`, as far as they fit; returns how many there are.
__device__ int ListUpTo(const float* row, int64_t tokens, uint64_t limit, Shared& shared) {
  __syncthreads();
  if (threadIdx.x == 0) shared.listed = 0;
  for (int i = static_cast<int>(threadIdx.x); i < kList; i += kThreads) shared.list[i] = kNoToken;
  __syncthreads();
  ForEachToken(row, tokens, [&](int64_t token, float logit, int) {
    const uint64_t key = KeyOf(token, logit);
    if (key > limit) return;
    const int place = atomicAdd(&shared.listed, 1);
    if (place < kList) shared.list[place] = key;
  });
  __syncthreads();
  return shared.listed;
}

// The key up to which exactly `count` tokens are, of more than that: found bit by bit, a pass each.
__device__ uint64_t ExactLimit(const float* row, int64_t tokens, int count, Shared& shared) {
  uint64_t limit = 0;
  for (int bit = 63; bit >= 0; --bit) {
    // Fewer than `count` are below this: the limit has the bit.
    const uint64_t probe = limit | uint64_t{1} << bit;
    int below = 0;
    ForEachToken(row, tokens, [&](int64_t token, float logit, int) {
      below += KeyOf(token, logit) < probe ? 1 : 0;
    });
    __syncthreads();
    if (threadIdx.x == 0) shared.listed = 0;
    __syncthreads();
    atomicAdd(&shared.listed, below);
    __syncthreads();
    if (shared.listed < count) limit = probe;
  }
  return limit;
}

// What the count-th of the groups' largest logits says.
__device__ uint64_t RoughLimit(const uint32_t (&first)[kPlaces], int count, Shared& shared) {
#pragma unroll
  for (int i = 0; i < kPlaces; ++i) shared.groups[threadIdx.x * kPlaces + i] = first[i];
  __syncthreads();
  Sort(shared.groups, kGroups);
  // Not of -infinity.
  const uint32_t key = min(shared.groups[count - 1], kLastKey - 1);
  return static_cast<uint64_t>(key) << 32 | 0xffffffffu;
}

// A block a row. Pass one finds the largest logit of each group, pass two adds up exponentials; the
// tokens up to the limit are then listed and sorted.
__global__ void __launch_bounds__(kThreads) TopLogitsKernel(TopLogits op) {
  __shared__ Shared shared;
  WaitForPrevious();
  LetNextBegin();
  const int64_t r = blockIdx.x;
  const float* row = op.logits + r * op.logits_stride;
  const int count = min(max(op.counts[r], 0), op.capacity);

  uint32_t first[kPlaces] = {kLastKey, kLastKey, kLastKey, kLastKey};
  float bad = 0;
  ForEachToken(row, op.tokens, [&](int64_t, float logit, int place) {
    first[place] = min(first[place], DescendingKey(logit));
    if (!(logit < INFINITY)) bad = 1;
  });
  const uint32_t own = min(min(first[0], first[1]), min(first[2], first[3]));
  const float largest = BlockMax(LogitOf(own), shared.scratch);
  float sum = 0;
  if (largest > -INFINITY) {
    ForEachToken(row, op.tokens, [&](int64_t, float logit, int) { sum += expf(logit - largest); });
  }
  __syncthreads();
  sum = BlockSum(sum, shared.scratch);
  __syncthreads();
  bad = BlockMax(bad, shared.scratch);
  if (threadIdx.x == 0) op.sums[r] = bad > 0 ? NAN : sum;
  if (count == 0 || bad > 0) return;

  int listed = ListUpTo(row, op.tokens, RoughLimit(first, count, shared), shared);
  if (listed > kList) {
    listed = ListUpTo(row, op.tokens, ExactLimit(row, op.tokens, count, shared), shared);
  }
  int padded = 2;
  while (padded < listed) padded *= 2;
  Sort(shared.list, padded);
  for (int i = static_cast<int>(threadIdx.x); i < count; i += kThreads) {
    const uint64_t key = shared.list[i];
    TopLogit top = {-INFINITY, -1};
    if (key != kNoToken) {
      top = {LogitOf(static_cast<uint32_t>(key >> 32)),
             op.first_id + static_cast<int32_t>(key & 0xffffffffu)};
    }
    op.top[r * op.capacity + i] = top;
  }
}

}  // namespace

absl::Status Enqueue(const TopLogits& op, Stream stream) {
  if (op.capacity < 0 || op.capacity > kMaxTopLogits || op.tokens <= 0 ||
      op.tokens > int64_t{1} << 30 || op.logits_stride % kPlaces != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("TopLogits of ", op.tokens, " tokens, ", op.capacity,
                     " of them: 1 to 2^30 and to 1024; strides are multiples of 4"));
  }
  if (!Aligned16({op.logits})) {
    return absl::InvalidArgumentError("TopLogits: logits are 16-byte aligned");
  }
  if (op.rows == 0) return absl::OkStatus();
  return Launch(TopLogitsKernel,
                {"TopLogits", dim3(static_cast<unsigned>(op.rows)), dim3(kThreads)}, stream, op);
}

}  // namespace skein::kernels::cuda
