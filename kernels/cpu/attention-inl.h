// Attention of the query heads of one row that share a KV head. Included once per instruction set.
//
// Phases, for up to kHeadsAtOnce heads at a time: scores of all slots that are seen, page by page,
// with slots in the lanes and a chain over head_dim, and capped where asked for; softmax, with its
// sum in kLanes lanes by position; the weighted sum of values, with head_dim in the lanes and a
// chain over positions, then divided. No sum knows where a page ends.
//
// T is what the cache keeps: float, uint16_t (bfloat16), float16_t or int8_t. Elements become
// floats exactly; an int8 slot's scale is multiplied into the sum over its key, and into its
// value's weight.
#if defined(SKEIN_KERNELS_CPU_ATTENTION_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SKEIN_KERNELS_CPU_ATTENTION_INL_H_
#undef SKEIN_KERNELS_CPU_ATTENTION_INL_H_
#else
#define SKEIN_KERNELS_CPU_ATTENTION_INL_H_
#endif

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#include "hwy/highway.h"
#include "kernels/cpu/math-inl.h"
#include "kernels/cpu/simd_ops.h"

HWY_BEFORE_NAMESPACE();
namespace skein::kernels::HWY_NAMESPACE {

// So many vectors of head_dim keep their sums in registers, for kHeadsAtOnce heads: 4 of AVX-512, 2
// of AVX2.
inline constexpr int kValueVectors = kParts == 1 ? 4 : 2;

template <typename T>
inline constexpr bool kScaled = std::is_same_v<T, int8_t>;

HWY_INLINE Vec LoadElements(const float* p) { return hn::Load(FloatTag(), p); }
HWY_INLINE Vec LoadElements(const uint16_t* p) {
  const hn::Rebind<uint32_t, FloatTag> wide;
  const auto bits = hn::PromoteTo(wide, hn::Load(hn::Rebind<uint16_t, FloatTag>(), p));
  return hn::BitCast(FloatTag(), hn::ShiftLeft<16>(bits));
}
HWY_INLINE Vec LoadElements(const hwy::float16_t* p) {
  return hn::PromoteTo(FloatTag(), hn::Load(hn::Rebind<hwy::float16_t, FloatTag>(), p));
}
HWY_INLINE Vec LoadElements(const int8_t* p) {
  const auto narrow = hn::Load(hn::Rebind<int8_t, FloatTag>(), p);
  return hn::ConvertTo(FloatTag(), hn::PromoteTo(IntTag(), narrow));
}

// Computes scores[h, i] for kLanes slots whose keys are columns of `keys`, with these scales.
// Fetches as many elements of `next_keys`, whose scores come soon, and of `values`, which are
// needed after the last score, into the L2 cache: pages lie anywhere, so that the CPU cannot see
// what follows.
template <typename T, int kHeads>
HWY_INLINE void ScoreSlots(const RowAttention& a, const float* queries, const T* keys,
                           const float* scales, const T* next_keys, const T* values,
                           float* scores) {
  const FloatTag d;
  Vec sums[kHeads][kParts];
#pragma GCC unroll 4
  for (int h = 0; h < kHeads; ++h) {
#pragma GCC unroll 4
    for (int p = 0; p < kParts; ++p) sums[h][p] = hn::Zero(d);
  }
  for (int64_t i = 0; i < a.head_dim; ++i, keys += a.layout.key_stride) {
    __builtin_prefetch(next_keys + i * a.layout.key_stride, 0, 2);
    __builtin_prefetch(values + i * kLanes, 0, 2);
#pragma GCC unroll 4
    for (int p = 0; p < kParts; ++p) {
      const auto key = LoadElements(keys + p * kWidth);
#pragma GCC unroll 4
      for (int h = 0; h < kHeads; ++h) {
        sums[h][p] = hn::MulAdd(hn::Set(d, queries[h * a.head_dim + i]), key, sums[h][p]);
      }
    }
  }
#pragma GCC unroll 4
  for (int p = 0; p < kParts; ++p) {
    auto scale = hn::Set(d, a.scale);
    if constexpr (kScaled<T>) scale = hn::Mul(scale, hn::Load(d, scales + p * kWidth));
#pragma GCC unroll 4
    for (int h = 0; h < kHeads; ++h) {
      hn::StoreU(hn::Mul(sums[h][p], scale), d, scores + h * a.scores_stride + p * kWidth);
    }
  }
}

template <typename T, int kHeads>
void Score(const RowAttention& a, const float* queries) {
  const auto head_at = [&](const KvSlots& slots, int64_t position) {
    return slots.pages + slots.page_table[position / a.page_size] * a.layout.page_stride;
  };
  const auto keys_at = [&](const KvSlots& slots, int64_t position) {
    return reinterpret_cast<const T*>(head_at(slots, position)) + position % a.page_size;
  };
  // Looks two groups further, in this context or in the next one.
  const auto keys_after = [&](int64_t position) {
    position += 2 * kLanes;
    if (position < a.slots.context) return keys_at(a.slots, position);
    position = (position - a.slots.context) / kLanes * kLanes;
    return position < a.next.context ? keys_at(a.next, position) : keys_at(a.slots, 0);
  };
  // From a multiple of kLanes in a page.
  const int64_t before = a.slots.first % a.page_size % kLanes;
  for (int64_t position = a.slots.first - before; position < a.slots.context;) {
    const int64_t slot = position % a.page_size;  // a multiple of kLanes
    const int64_t count = std::min({kLanes, a.page_size - slot, a.slots.context - position});
    const std::byte* head = head_at(a.slots, position);
    ScoreSlots<T, kHeads>(
        a, queries, keys_at(a.slots, position),
        reinterpret_cast<const float*>(head + a.layout.key_scales) + slot, keys_after(position),
        reinterpret_cast<const T*>(head + a.layout.values) + slot * a.layout.value_stride,
        a.scores + position);
    position += count;
  }
}

// Caps scores [first, n), and writes from and up to multiples of kLanes.
HWY_INLINE void CapScores(float* scores, int64_t first, int64_t n, float cap) {
  for (int64_t i = first / kLanes * kLanes; i < n; i += kWidth) {
    hn::Store(SoftCap(hn::Load(FloatTag(), scores + i), cap), FloatTag(), scores + i);
  }
}

// Turns scores [first, n) into e^(score - largest) and returns their sum. Writes from and up to
// multiples of kLanes.
HWY_INLINE float Softmax(float* scores, int64_t first, int64_t n) {
  const FloatTag d;
  const int64_t begin = first / kLanes * kLanes;
  const int64_t padded = (n + kLanes - 1) / kLanes * kLanes;
  std::fill(scores + begin, scores + first, -std::numeric_limits<float>::infinity());
  std::fill(scores + n, scores + padded, -std::numeric_limits<float>::infinity());
  auto largest = hn::Load(d, scores + begin);
  for (int64_t i = begin + kWidth; i < padded; i += kWidth) {
    largest = hn::Max(largest, hn::Load(d, scores + i));
  }
  largest = hn::MaxOfLanes(d, largest);
  LaneSums sums;
  for (int64_t i = begin; i < padded; i += kWidth) {
    const auto e = Exp(hn::Sub(hn::Load(d, scores + i), largest));
    hn::Store(e, d, scores + i);
    sums.At(i) = hn::Add(sums.At(i), e);
  }
  return sums.Total();
}

// out[h, i] = sum over positions of weight[h] * value[i] / totals[h], for kVectors vectors of
// head_dim from `first`.
template <typename T, int kHeads, int kVectors>
void WeighValues(const RowAttention& a, const float* totals, int64_t first, float* out) {
  const FloatTag d;
  Vec sums[kHeads][kVectors];
#pragma GCC unroll 4
  for (int h = 0; h < kHeads; ++h) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) sums[h][v] = hn::Zero(d);
  }
  const float* weights = a.scores + a.slots.first;
  for (int64_t position = a.slots.first; position < a.slots.context;) {
    const std::byte* head =
        a.slots.pages + a.slots.page_table[position / a.page_size] * a.layout.page_stride;
    const int64_t slot = position % a.page_size;
    const T* value =
        reinterpret_cast<const T*>(head + a.layout.values) + slot * a.layout.value_stride + first;
    const auto* scales = reinterpret_cast<const float*>(head + a.layout.value_scales) + slot;
    const int64_t count = std::min(a.page_size - slot, a.slots.context - position);
    position += count;
    for (int64_t s = 0; s < count; ++s, ++weights, value += a.layout.value_stride) {
      Vec values[kVectors];
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) values[v] = LoadElements(value + v * kWidth);
#pragma GCC unroll 4
      for (int h = 0; h < kHeads; ++h) {
        float slot_weight = weights[h * a.scores_stride];
        if constexpr (kScaled<T>) slot_weight *= scales[s];
        const auto weight = hn::Set(d, slot_weight);
#pragma GCC unroll 4
        for (int v = 0; v < kVectors; ++v) {
          sums[h][v] = hn::MulAdd(weight, values[v], sums[h][v]);
        }
      }
    }
  }
  const int64_t count = std::min(kVectors * kWidth, a.head_dim - first);
#pragma GCC unroll 4
  for (int h = 0; h < kHeads; ++h) {
    alignas(64) float row[kVectors * kWidth];
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      hn::Store(hn::Div(sums[h][v], hn::Set(d, totals[h])), d, row + v * kWidth);
    }
    std::memcpy(out + h * a.head_dim + first, row, count * sizeof(float));
  }
}

template <typename T, int kHeads>
void AttendHeads(const RowAttention& a, int64_t first_head) {
  Score<T, kHeads>(a, a.queries + first_head * a.head_dim);
  float totals[kHeads];
  for (int h = 0; h < kHeads; ++h) {
    if (a.softcap > 0) {
      CapScores(a.scores + h * a.scores_stride, a.slots.first, a.slots.context, a.softcap);
    }
    totals[h] = Softmax(a.scores + h * a.scores_stride, a.slots.first, a.slots.context);
  }
  float* out = a.out + first_head * a.head_dim;
  int64_t first = 0;
  for (; first + kValueVectors * kWidth <= a.layout.value_stride; first += kValueVectors * kWidth) {
    WeighValues<T, kHeads, kValueVectors>(a, totals, first, out);
  }
  for (; first < a.head_dim; first += kWidth) WeighValues<T, kHeads, 1>(a, totals, first, out);
}

template <typename T>
void AttendAllHeads(const RowAttention& a) {
  static_assert(kHeadsAtOnce == 4);
  int64_t head = 0;
  for (; head + 4 <= a.heads; head += 4) AttendHeads<T, 4>(a, head);
  switch (a.heads - head) {
    case 3:
      return AttendHeads<T, 3>(a, head);
    case 2:
      return AttendHeads<T, 2>(a, head);
    case 1:
      return AttendHeads<T, 1>(a, head);
  }
}

void Attend(const RowAttention& a) {
  switch (a.dtype) {
    case KvDType::kF32:
      return AttendAllHeads<float>(a);
    case KvDType::kBF16:
      return AttendAllHeads<uint16_t>(a);
    case KvDType::kF16:
      return AttendAllHeads<hwy::float16_t>(a);
    case KvDType::kInt8:
      return AttendAllHeads<int8_t>(a);
  }
}

}  // namespace skein::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // SKEIN_KERNELS_CPU_ATTENTION_INL_H_
