// Defines vectors, and arithmetic on them that gives the same bits at every width. Included once
// per instruction set.
#if defined(SKEIN_KERNELS_CPU_MATH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SKEIN_KERNELS_CPU_MATH_INL_H_
#undef SKEIN_KERNELS_CPU_MATH_INL_H_
#else
#define SKEIN_KERNELS_CPU_MATH_INL_H_
#endif

#include <cstdint>

#include "hwy/highway.h"
#include "kernels/packing/layout.h"

HWY_BEFORE_NAMESPACE();
namespace skein::kernels::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using FloatTag = hn::CappedTag<float, kLanes>;
using IntTag = hn::RebindToSigned<FloatTag>;
using Vec = hn::Vec<FloatTag>;
inline constexpr int64_t kWidth = HWY_LANES(float) < kLanes ? HWY_LANES(float) : kLanes;
inline constexpr int kParts = static_cast<int>(kLanes / kWidth);  // vectors of kLanes floats

// Calls body(offset, load, store) for pieces of one vector of [0, n): load(p) reads p[offset...],
// with zeros from n on, store(v, p) writes p[offset...] up to n.
template <typename Body>
HWY_INLINE void ForVectors(int64_t n, const Body& body) {
  const FloatTag d;
  int64_t i = 0;
  for (; i + kWidth <= n; i += kWidth) {
    body(
        i, [&](const float* p) HWY_ATTR { return hn::LoadU(d, p + i); },
        [&](Vec v, float* p) HWY_ATTR { hn::StoreU(v, d, p + i); });
  }
  if (i == n) return;
  const auto mask = hn::FirstN(d, static_cast<size_t>(n - i));
  body(
      i, [&](const float* p) HWY_ATTR { return hn::MaskedLoad(mask, d, p + i); },
      [&](Vec v, float* p) HWY_ATTR { hn::BlendedStore(v, mask, d, p + i); });
}

// Sums over kLanes lanes: element i goes to lane i % kLanes, and the lanes are joined in halves.
class LaneSums {
 public:
  HWY_INLINE LaneSums() {
    for (Vec& sum : sums_) sum = hn::Zero(FloatTag());
  }
  HWY_INLINE Vec& At(int64_t offset) { return sums_[offset / kWidth % kParts]; }
  HWY_INLINE float Total() const {
    alignas(64) float lanes[kLanes];
    for (int p = 0; p < kParts; ++p) hn::Store(sums_[p], FloatTag(), lanes + p * kWidth);
    for (int64_t half = kLanes / 2; half > 0; half /= 2) {
      for (int64_t i = 0; i < half; ++i) lanes[i] += lanes[i + half];
    }
    return lanes[0];
  }

 private:
  Vec sums_[kParts];
};

// Returns e^x within 2 units in the last place; 0 below -104, infinity above 89; NaN stays NaN.
HWY_INLINE Vec Exp(Vec x) {
  const FloatTag d;
  const IntTag di;
  const auto clamped = hn::Min(hn::Max(x, hn::Set(d, -104.0f)), hn::Set(d, 89.0f));
  // x = n ln 2 + r with |r| <= ln 2 / 2. ln 2 has two parts, the first short enough that n times it
  // is exact.
  const auto n = hn::Round(hn::Mul(clamped, hn::Set(d, 1.44269504f)));
  auto r = hn::NegMulAdd(n, hn::Set(d, 0.693145752f), clamped);
  r = hn::NegMulAdd(n, hn::Set(d, 1.42860677e-6f), r);
  // e^r is Taylor's series: the first term left out is below 2^-26.
  auto p = hn::Set(d, 1.0f / 5040);
  p = hn::MulAdd(p, r, hn::Set(d, 1.0f / 720));
  p = hn::MulAdd(p, r, hn::Set(d, 1.0f / 120));
  p = hn::MulAdd(p, r, hn::Set(d, 1.0f / 24));
  p = hn::MulAdd(p, r, hn::Set(d, 1.0f / 6));
  p = hn::MulAdd(p, r, hn::Set(d, 0.5f));
  p = hn::MulAdd(p, r, hn::Set(d, 1.0f));
  p = hn::MulAdd(p, r, hn::Set(d, 1.0f));
  // 2^n is two factors, since n reaches from -150 to 128.
  const auto exponent = hn::ConvertTo(di, n);
  const auto half = hn::ShiftRight<1>(exponent);
  const auto power = [&](auto e) HWY_ATTR {
    return hn::BitCast(d, hn::ShiftLeft<23>(hn::Add(e, hn::Set(di, 127))));
  };
  const auto result = hn::Mul(hn::Mul(p, power(half)), power(hn::Sub(exponent, half)));
  return hn::IfThenElse(hn::Eq(x, x), result, x);
}

// Returns cap * tanh(x / cap), within some 4 units in the last place of the cap.
HWY_INLINE Vec SoftCap(Vec x, float cap) {
  const FloatTag d;
  const auto one = hn::Set(d, 1.0f);
  const auto e = Exp(hn::Mul(x, hn::Set(d, 2.0f / cap)));
  const auto tanh = hn::Sub(one, hn::Div(hn::Set(d, 2.0f), hn::Add(e, one)));
  return hn::Mul(tanh, hn::Set(d, cap));
}

}  // namespace skein::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // SKEIN_KERNELS_CPU_MATH_INL_H_
