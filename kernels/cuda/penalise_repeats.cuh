// DRY on a row of logits, as kernels/sampling/dry.h defines it, with the same bits.
//
// Each block of the row has the tokens of its own part: wherever one of them stands in the history,
// a thread compares what is before it with the history's end. A repeat is followed no further than
// its length counts, and given up where it cannot be longer than one that the token followed
// already.
#pragma once

#include <cstdint>

#include "kernels/cuda/device_draws.h"
#include "kernels/cuda/row_in_cluster.cuh"

namespace skein::kernels::cuda {

// As kernels/sampling has it.
inline constexpr double kMaxDryPenalty = 1e30;

struct RepeatPenaliser {
  const SampledDraw& draw;
  const SlotMemory& slots;
  const RowInCluster& row;
  const int64_t vocabulary;
  // The end of the history that is looked at, [size].
  const int32_t* tokens = nullptr;
  int size = 0;

  // In the place of RowShared, which holds nothing yet: the longest repeats that tokens of a piece
  // of the block's part have followed.
  static constexpr int kTable = sizeof(RowShared) / sizeof(int32_t);
  __device__ static int32_t* Table() { return reinterpret_cast<int32_t*>(&SharedOfRow()); }

  __device__ bool IsBreaker(int32_t token) const {
    if (!draw.breaks || token < 0 || token >= vocabulary) return false;
    const uint32_t* const bits = slots.breakers + draw.slot * slots.breaker_words;
    return (bits[token / 32] >> (token % 32) & 1) != 0;
  }

  // Whether a breaker of several tokens ends where the first `end` tokens do. Entries are as
  // SlotMemory says.
  __device__ bool EndsLonger(int end) const {
    const SetPair* const heads =
        slots.lists + int64_t{draw.slot} * kSlotEntries + draw.breakers_begin;
    int low = 0;
    for (int high = draw.breakers; low < high;) {
      const int middle = (low + high) / 2;
      if (heads[middle].index < tokens[end - 1]) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    for (; low < draw.breakers && heads[low].index == tokens[end - 1]; ++low) {
      const SetPair* next = heads + heads[low].value;
      for (int at = end - 2; at >= 0 && tokens[at] == next->index; --at, ++next) {
        if (next->value == 0) return true;
      }
    }
    return false;
  }

  // How many tokens have followed the last breaker; at most `most`.
  __device__ int SinceBreaker(int most) const {
    if (!draw.breaks && draw.breakers == 0) return most;
    int32_t* const last = Table();
    if (threadIdx.x == 0) *last = 0;
    for (int begin = 0; begin < most; begin += kRowThreads) {
      const int since = begin + static_cast<int>(threadIdx.x);
      const int end = size - since;
      const bool ends = since < most && (IsBreaker(tokens[end - 1]) || EndsLonger(end));
      if (!__syncthreads_or(ends ? 1 : 0)) continue;
      if (ends) atomicMax(last, end);
      __syncthreads();
      most = size - *last;
      __syncthreads();
    }
    return most;
  }

  // How many of the tokens before token `i` are those at the end; at most `most`.
  __device__ int LengthBefore(int i, int most) const {
    int length = 0;
    while (length < most && tokens[i - 1 - length] == tokens[size - 1 - length]) ++length;
    return length;
  }

  __device__ static double Power(double base, int exponent) {
    double power = 1;
    for (; exponent > 0; exponent >>= 1, base = __dmul_rn(base, base)) {
      if (exponent & 1) power = __dmul_rn(power, base);
    }
    return power;
  }
  __device__ float Penalised(float logit, int length) const {
    const double power = Power(double{draw.dry_base}, length - draw.dry_allowed_length);
    const double penalty = fmin(__dmul_rn(double{draw.dry_multiplier}, power), kMaxDryPenalty);
    return static_cast<float>(__dsub_rn(double{logit}, penalty));
  }

  __device__ void Penalise() {
    const int all = draw.prompt + draw.output;
    size = draw.dry_last_n >= 0 ? min(draw.dry_last_n, all) : all;
    tokens = slots.histories + draw.slot * slots.history_stride + (all - size);
    const int least = max(draw.dry_allowed_length, 1);
    const int limit = SinceBreaker(min(size, draw.dry_most));
    if (limit < least) return;
    volatile int32_t* const longest = Table();
    for (int begin = 0; begin < row.count; begin += kTable) {
      const int piece = min(kTable, row.count - begin);
      const int first = row.first + begin;
      for (int t = static_cast<int>(threadIdx.x); t < piece; t += kRowThreads) longest[t] = 0;
      __syncthreads();
      // From the end: what stands there may have the longest repeats.
      for (int i = size - 1 - static_cast<int>(threadIdx.x); i >= least; i -= kRowThreads) {
        const int t = tokens[i] - first;
        if (t < 0 || t >= piece) continue;
        const int most = min(i, limit);
        const int known = longest[t];
        if (known >= most || tokens[i - 1 - known] != tokens[size - 1 - known]) continue;
        const int length = LengthBefore(i, most);
        if (length >= least) atomicMax(Table() + t, length);
      }
      __syncthreads();
      for (int t = static_cast<int>(threadIdx.x); t < piece; t += kRowThreads) {
        float& logit = LogitsOfRow()[begin + t];
        const int length = longest[t];
        if (length >= least && !IsBreaker(first + t)) logit = Penalised(logit, length);
      }
      __syncthreads();
    }
  }
};

}  // namespace skein::kernels::cuda
