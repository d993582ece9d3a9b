// What is done to a row of logits before a draw: biases, penalties, tokens that are left out. Every
// float is rounded as kernels/sampling does.
#pragma once

#include <cstdint>

#include "kernels/cuda/device_draws.h"
#include "kernels/cuda/penalise_repeats.cuh"
#include "kernels/cuda/row_in_cluster.cuh"

namespace skein::kernels::cuda {

struct RowAdjuster {
  const SampledDraw& draw;
  const SlotMemory& slots;
  const float* const raw;  // this block's logits as they came
  const RowInCluster& row;
  const int64_t vocabulary;
  const int32_t* history = slots.histories + draw.slot * slots.history_stride;
  const SetPair* biases = slots.lists + int64_t{draw.slot} * kSlotEntries;

  // The index of a token in the block's part, or -1.
  __device__ int IndexOf(int32_t token) const {
    const int i = token - row.first;
    return i >= 0 && i < row.count ? i : -1;
  }
  template <typename F>
  __device__ static void ForEach(int begin, int end, const F& f) {
    for (int i = begin + static_cast<int>(threadIdx.x); i < end; i += kRowThreads) f(i);
  }

  // Adds the biases of the token that stands at `at` and behind it.
  __device__ float Biased(float logit, int at) const {
    const int32_t token = biases[at].index;
    for (; at < draw.biases && biases[at].index == token; ++at) {
      logit = __fadd_rn(logit, __int_as_float(biases[at].value));
    }
    return logit;
  }
  __device__ void Bias() const {
    ForEach(0, draw.biases, [&](int b) {
      const int i = IndexOf(biases[b].index);
      if (i >= 0 && (b == 0 || biases[b - 1].index != biases[b].index)) {
        LogitsOfRow()[i] = Biased(raw[i], b);
      }
    });
    __syncthreads();
  }
  __device__ float WithBias(int i) const {
    const int32_t token = row.first + i;
    int begin = 0;
    for (int end = draw.biases; begin < end;) {
      const int middle = (begin + end) / 2;
      if (biases[middle].index < token) {
        begin = middle + 1;
      } else {
        end = middle;
      }
    }
    const bool found = begin < draw.biases && biases[begin].index == token;
    return found ? Biased(raw[i], begin) : raw[i];
  }

  // Tokens of the history have their counts in the place of their logits first, as NaN.
  __device__ void Penalise() const {
    constexpr uint32_t kTag = 0x7fc00000u;
    constexpr uint32_t kCount = 0x003fffffu;
    auto* const bits = reinterpret_cast<uint32_t*>(LogitsOfRow());
    const int all = draw.prompt + draw.output;
    ForEach(0, all, [&](int h) {
      if (const int i = IndexOf(history[h]); i >= 0) bits[i] = kTag;
    });
    __syncthreads();
    ForEach(draw.prompt, all, [&](int h) {
      if (const int i = IndexOf(history[h]); i >= 0) atomicAdd(&bits[i], 1u);
    });
    __syncthreads();
    // Threads that meet at a token write the same, or find it written: who reads and writes it at
    // once does so by atomics.
    ForEach(0, all, [&](int h) {
      const int i = IndexOf(history[h]);
      if (i < 0) return;
      const uint32_t tagged = atomicOr(&bits[i], 0u);
      if ((tagged & ~kCount) != kTag) return;
      float logit = WithBias(i);
      logit = logit > 0 ? __fdiv_rn(logit, draw.repetition_penalty)
                        : __fmul_rn(logit, draw.repetition_penalty);
      if (const uint32_t count = tagged & kCount; count > 0) {
        const float frequency = __fmul_rn(static_cast<float>(count), draw.frequency_penalty);
        logit = __fsub_rn(logit, __fadd_rn(draw.presence_penalty, frequency));
      }
      atomicExch(&bits[i], isnan(logit) ? 0xffffffffu : __float_as_uint(logit));
    });
    __syncthreads();
  }

  __device__ void LeaveOutStops() const {
    ForEach(draw.biases, draw.biases + draw.stops, [&](int s) {
      if (const int i = IndexOf(biases[s].index); i >= 0) LogitsOfRow()[i] = -INFINITY;
    });
    __syncthreads();
  }

  // The mask may lie in the host's memory: each word is read once.
  __device__ void LeaveOut(const uint32_t* mask) const {
    const int first_word = row.first / 32;
    const int words = (row.first + row.count + 31) / 32 - first_word;
    auto* const own = reinterpret_cast<uint32_t*>(&SharedOfRow());  // which holds nothing yet
    ForEach(0, words, [&](int w) { own[w] = mask[first_word + w]; });
    __syncthreads();
    ForEach(0, row.count, [&](int i) {
      const int token = row.first + i;
      if ((own[token / 32 - first_word] >> (token % 32) & 1) == 0) LogitsOfRow()[i] = -INFINITY;
    });
    __syncthreads();
  }

  // Whether logits were changed.
  __device__ bool Adjust(const uint32_t* mask) const {
    if (draw.biases > 0) Bias();
    if (draw.penalises) Penalise();
    if (draw.dry_most > 0) RepeatPenaliser{draw, slots, row, vocabulary}.Penalise();
    if (draw.stops > 0) LeaveOutStops();
    if (mask != nullptr) LeaveOut(mask);
    return draw.biases > 0 || draw.remembers() || draw.stops > 0 || mask != nullptr;
  }
};

}  // namespace skein::kernels::cuda
