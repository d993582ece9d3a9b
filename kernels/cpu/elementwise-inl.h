// Computes norms, gated units, rotations, additions and caps; reads as fast as memory allows, and
// multiplies as fast as the CPU can. Included once per instruction set.
#if defined(SKEIN_KERNELS_CPU_ELEMENTWISE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SKEIN_KERNELS_CPU_ELEMENTWISE_INL_H_
#undef SKEIN_KERNELS_CPU_ELEMENTWISE_INL_H_
#else
#define SKEIN_KERNELS_CPU_ELEMENTWISE_INL_H_
#endif

#include <cmath>
#include <cstddef>
#include <cstdint>

#include "hwy/highway.h"
#include "kernels/cpu/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace skein::kernels::HWY_NAMESPACE {

void Add(const float* a, const float* b, int64_t n, float* out) {
  ForVectors(
      n, [&](int64_t, auto load, auto store) HWY_ATTR { store(hn::Add(load(a), load(b)), out); });
}

void AddScaled(const float* in, float scale, int64_t n, float* out) {
  const auto factor = hn::Set(FloatTag(), scale);
  ForVectors(n, [&](int64_t, auto load, auto store)
                    HWY_ATTR { store(hn::MulAdd(load(in), factor, load(out)), out); });
}

void RmsNorm(const float* in, const float* gain, float eps, int64_t n, float* out) {
  LaneSums squares;
  ForVectors(n, [&](int64_t i, auto load, auto) HWY_ATTR {
    Vec& sum = squares.At(i);
    sum = hn::MulAdd(load(in), load(in), sum);
  });
  const auto scale =
      hn::Set(FloatTag(), 1.0f / std::sqrt(squares.Total() / static_cast<float>(n) + eps));
  ForVectors(n, [&](int64_t, auto load, auto store)
                    HWY_ATTR { store(hn::Mul(hn::Mul(load(in), scale), load(gain)), out); });
}

void Scale(float* data, float scale, int64_t n) {
  const auto factor = hn::Set(FloatTag(), scale);
  ForVectors(n, [&](int64_t, auto load, auto store)
                    HWY_ATTR { store(hn::Mul(load(data), factor), data); });
}

void SoftCapAll(float* data, float cap, int64_t n) {
  ForVectors(
      n, [&](int64_t, auto load, auto store) HWY_ATTR { store(SoftCap(load(data), cap), data); });
}

void SwiGlu(const float* gate, const float* up, int64_t n, float* out) {
  const auto one = hn::Set(FloatTag(), 1.0f);
  ForVectors(n, [&](int64_t, auto load, auto store) HWY_ATTR {
    const auto g = load(gate);
    const auto silu = hn::Div(g, hn::Add(one, Exp(hn::Neg(g))));
    store(hn::Mul(silu, load(up)), out);
  });
}

// x / 2 * (1 + tanh(u)) is x / (1 + e^(-2 u)).
void GeGluTanh(const float* gate, const float* up, int64_t n, float* out) {
  const FloatTag d;
  const auto one = hn::Set(d, 1.0f);
  ForVectors(n, [&](int64_t, auto load, auto store) HWY_ATTR {
    const auto g = load(gate);
    const auto cubic = hn::MulAdd(hn::Mul(hn::Set(d, 0.044715f), hn::Mul(g, g)), g, g);
    const auto e = Exp(hn::Mul(hn::Set(d, -1.59576912f), cubic));  // -2 sqrt(2 / pi)
    store(hn::Mul(hn::Div(g, hn::Add(one, e)), load(up)), out);
  });
}

void Rotate(float* a, float* b, const float* cosines, const float* sines, int64_t n) {
  ForVectors(n, [&](int64_t, auto load, auto store) HWY_ATTR {
    const auto x = load(a);
    const auto y = load(b);
    const auto c = load(cosines);
    const auto s = load(sines);
    store(hn::MulSub(x, c, hn::Mul(y, s)), a);
    store(hn::MulAdd(y, c, hn::Mul(x, s)), b);
  });
}

uint64_t Read(const std::byte* data, int64_t bytes) {
  const hn::ScalableTag<uint64_t> d;
  constexpr int64_t kWords = HWY_LANES(uint64_t);
  constexpr int kLoads = 8;  // enough in flight that only memory is waited for
  const auto* words = reinterpret_cast<const uint64_t*>(data);
  hn::Vec<decltype(d)> sums[kLoads];
  for (auto& sum : sums) sum = hn::Zero(d);
  for (int64_t i = 0; i < bytes / 8; i += kLoads * kWords) {
#pragma GCC unroll 8
    for (int j = 0; j < kLoads; ++j) {
      sums[j] = hn::Xor(sums[j], hn::Load(d, words + i + j * kWords));
    }
  }
  for (int j = 1; j < kLoads; ++j) sums[0] = hn::Xor(sums[0], sums[j]);
  return hn::GetLane(sums[0]);
}

int64_t MultiplyAdd(int64_t rounds, float* sink) {
  const FloatTag d;
  constexpr int kChains = 12;  // more than latency times throughput; they fit into 16 registers
  // x = 1/2 x + 1/2 tends to 1, so that numbers stay normal.
  const auto half = hn::Set(d, 0.5f);
  Vec sums[kChains];
  for (int j = 0; j < kChains; ++j) sums[j] = hn::Set(d, static_cast<float>(j));
  for (int64_t i = 0; i < rounds; ++i) {
#pragma GCC unroll 12
    for (int j = 0; j < kChains; ++j) sums[j] = hn::MulAdd(sums[j], half, half);
  }
  for (int j = 1; j < kChains; ++j) sums[0] = hn::Add(sums[0], sums[j]);
  *sink = hn::GetLane(sums[0]);
  return rounds * kChains * kWidth;
}

}  // namespace skein::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // SKEIN_KERNELS_CPU_ELEMENTWISE_INL_H_
