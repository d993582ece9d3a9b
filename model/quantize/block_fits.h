// How numbers become levels: the scales, and minima, with which they err least. Internal to
// model/quantize. Sums are taken in any order (BUILD's flags).
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "base/dtype.h"
#include "base/quantized_blocks.h"

namespace skein::model {

inline float Round(float x) { return __builtin_rintf(x); }

// Rounded to F16, whose largest number stands for what is beyond.
inline float Half(float x) {
  constexpr float kMostF16 = 65504;
  return F16ToFloat(FloatToF16(std::clamp(x, -kMostF16, kMostF16)));
}

// What an element's small number may be, as Level, and stand for.
template <int kLeast, int kMost>
struct Integers {
  // The value of the largest magnitude.
  static constexpr float kExtreme = kLeast;
  static constexpr bool kSymmetric = kLeast == -kMost;
  // Of the grid: how far from it an extreme element's value may lie.
  static constexpr float kReach = 1;
  static float Nearest(float x) {
    return Round(std::clamp(x, static_cast<float>(kLeast), static_cast<float>(kMost)));
  }
  static int Code(float value) { return static_cast<int>(value) - kLeast; }
};

struct Iq4Table {
  static constexpr float kExtreme = kIq4Values[0];
  static constexpr bool kSymmetric = false;
  static constexpr float kReach = 14;  // about half of the table's widest step
  // Where a level ends and the next one begins.
  static constexpr float Middle(int i) {
    return static_cast<float>(kIq4Values[i] + kIq4Values[i + 1]) / 2;
  }
  static int Code(float x) {
    int code = 0;
    for (int i = 0; i < 15; ++i) code += x >= Middle(i) ? 1 : 0;
    return code;
  }
  // Without a branch or a table, so that it works on vectors.
  static float Nearest(float x) {
    float value = kIq4Values[0];
    for (int i = 0; i < 15; ++i) {
      const int gap = kIq4Values[i + 1] - kIq4Values[i];
      value += x >= Middle(i) ? static_cast<float>(gap) : 0.0f;
    }
    return value;
  }
};

// Numbers with the weights of their squared errors.
template <int kCount>
struct Weighted {
  const float* x;
  const float* w;
};

// Sums of weight * ...
struct ScaleSums {
  float xq = 0;
  float qq = 0;
  float Scale() const { return qq > 0 ? xq / qq : 0; }
  // By how much the best scale lowers the sum of weight * x^2.
  float gain() const { return qq > 0 ? xq * xq / qq : 0; }
};

template <typename Levels, int kCount>
ScaleSums SumsAt(Weighted<kCount> in, float scale) {
  const float inverse = 1 / scale;
  ScaleSums sums;
  for (int i = 0; i < kCount; ++i) {
    const float q = Levels::Nearest(in.x[i] * inverse);
    sums.xq += in.w[i] * in.x[i] * q;
    sums.qq += in.w[i] * q * q;
  }
  return sums;
}

// The best of the scales by which `pivot` has about the level of the largest magnitude.
template <typename Levels, int kCount>
ScaleSums BestAround(Weighted<kCount> in, float pivot) {
  constexpr int kSteps = 8;  // to either side
  ScaleSums best;
  for (int step = -kSteps; step <= kSteps; ++step) {
    const float level = Levels::kExtreme + Levels::kReach * static_cast<float>(step) / kSteps;
    for (const float scale : {pivot / level, -pivot / level}) {
      if (!std::isfinite(1 / scale)) continue;
      const ScaleSums sums = SumsAt<Levels>(in, scale);
      if (sums.gain() > best.gain()) best = sums;
      if (Levels::kSymmetric) break;
    }
  }
  return best;
}

// The scale d for which x is nearest to d * level; 0 for zeros.
template <typename Levels, int kCount>
float FitScale(Weighted<kCount> in) {
  float extreme = 0;
  float important = 0;  // where all but one hardly count
  float most = 0;
  for (int i = 0; i < kCount; ++i) {
    if (std::abs(in.x[i]) > std::abs(extreme)) extreme = in.x[i];
    if (in.w[i] * in.x[i] * in.x[i] <= most) continue;
    most = in.w[i] * in.x[i] * in.x[i];
    important = in.x[i];
  }
  ScaleSums best = BestAround<Levels>(in, extreme);
  if (important != extreme) {
    const ScaleSums other = BestAround<Levels>(in, important);
    if (other.gain() > best.gain()) best = other;
  }
  constexpr int kRefits = 3;
  for (int i = 0; i < kRefits && best.Scale() != 0; ++i) {
    const ScaleSums sums = SumsAt<Levels>(in, best.Scale());
    if (!(sums.gain() > best.gain())) break;
    best = sums;
  }
  return best.Scale();
}

// x is near scale * q - min, where q is in [0, kMost].
struct ScaleMin {
  float scale = 0;
  float min = 0;
};

template <int kMost, int kCount>
float ErrorAt(Weighted<kCount> in, ScaleMin fit) {
  const float inverse = fit.scale > 0 ? 1 / fit.scale : 0;
  float error = 0;
  for (int i = 0; i < kCount; ++i) {
    const float q = Integers<0, kMost>::Nearest((in.x[i] + fit.min) * inverse);
    const float off = fit.scale * q - fit.min - in.x[i];
    error += in.w[i] * off * off;
  }
  return error;
}

struct Refitted {
  ScaleMin fit;
  float error = INFINITY;  // with the roundings that led to it
};

// The best scale and minimum for the roundings that `fit` leads to, by least squares of what it
// leaves, so that small errors of large numbers are told. Without `signed_min`, minima are not
// negative.
template <int kMost, int kCount>
Refitted Refit(Weighted<kCount> in, ScaleMin fit, bool signed_min) {
  const float inverse = 1 / fit.scale;
  float w = 0, q1 = 0, q2 = 0, r1 = 0, rq = 0, rr = 0;
  for (int i = 0; i < kCount; ++i) {
    const float q = Integers<0, kMost>::Nearest((in.x[i] + fit.min) * inverse);
    const float left = in.x[i] - (fit.scale * q - fit.min);
    const float wq = in.w[i] * q;
    const float wr = in.w[i] * left;
    w += in.w[i];
    q1 += wq;
    q2 += wq * q;
    r1 += wr;
    rq += wr * q;
    rr += wr * left;
  }
  Refitted best;
  const float determinant = w * q2 - q1 * q1;
  constexpr float kAlike = 1e-6f;  // all q are the same, but for what sums round
  if (determinant > kAlike * w * q2) {
    const float more = (w * rq - q1 * r1) / determinant;
    const float lower = (q1 * rq - q2 * r1) / determinant;
    best = {{fit.scale + more, fit.min + lower}, rr - more * rq + lower * r1};
  } else {
    best = {{fit.scale, fit.min - r1 / w}, rr - r1 * r1 / w};
  }
  if (best.fit.min < 0 && !signed_min) {
    if (q2 == 0) return {};
    best.fit = {(rq + fit.scale * q2 - fit.min * q1) / q2, 0};
    best.error = ErrorAt<kMost>(in, best.fit);
  }
  if (!(best.fit.scale > 0)) return {};
  best.error = std::max(best.error, 0.0f);
  return best;
}

template <int kMost, int kCount>
ScaleMin FitScaleMin(Weighted<kCount> in, bool signed_min) {
  float low = in.x[0], high = in.x[0];
  for (int i = 1; i < kCount; ++i) {
    low = std::min(low, in.x[i]);
    high = std::max(high, in.x[i]);
  }
  if (!signed_min) low = std::min(low, 0.0f);
  Refitted best = {.fit = {0, -low}};
  best.error = ErrorAt<kMost>(in, best.fit);
  if (high - low < 1e-30f) return best.fit;
  // How many levels the range is wide, a level less to one more, and where its low end lies: up to
  // half a level from the lowest one.
  // Small scales come first, and larger ones have to be better by a hundredth: the largest scale of
  // a superblock decides how coarse all of its scales are.
  constexpr int kSteps = 5;
  constexpr float kBetter = 0.99f;
  for (int step = kSteps; step >= -kSteps; --step) {
    const float scale = (high - low) / (kMost + static_cast<float>(step) / kSteps);
    for (int quarter = -2; quarter <= 2; ++quarter) {
      const ScaleMin fit = {scale, scale * static_cast<float>(quarter) / 4 - low};
      const Refitted refitted = Refit<kMost>(in, fit, signed_min);
      if (refitted.error < kBetter * best.error) best = refitted;
    }
  }
  constexpr int kRefits = 4;
  for (int i = 0; i < kRefits && best.fit.scale > 0; ++i) {
    const Refitted refitted = Refit<kMost>(in, best.fit, signed_min);
    if (!(refitted.error < best.error)) break;
    best = refitted;
  }
  return best.fit;
}

inline void PutHalf(float value, uint8_t* out) {
  const uint16_t bits = FloatToF16(value);
  std::memcpy(out, &bits, sizeof(bits));
}

// Two codes a byte, of 32: element i + 16 is the upper one of byte i.
inline void PutNibbles(const uint8_t* codes, uint8_t* out) {
  for (int i = 0; i < 16; ++i) {
    out[i] = static_cast<uint8_t>((codes[i] & 15) | codes[i + 16] << 4);
  }
}

template <int kCount>
using Codes = std::array<uint8_t, kCount>;

template <typename Levels, int kCount>
Codes<kCount> CodesAt(Weighted<kCount> in, float scale) {
  Codes<kCount> codes;
  const float inverse = scale == 0 ? 0 : 1 / scale;
  for (int i = 0; i < kCount; ++i) {
    codes[i] = static_cast<uint8_t>(Levels::Code(Levels::Nearest(in.x[i] * inverse)));
  }
  return codes;
}

template <int kMost, int kCount>
Codes<kCount> CodesAt(Weighted<kCount> in, ScaleMin fit) {
  Codes<kCount> codes;
  const float inverse = fit.scale > 0 ? 1 / fit.scale : 0;
  for (int i = 0; i < kCount; ++i) {
    codes[i] = static_cast<uint8_t>(Integers<0, kMost>::Nearest((in.x[i] + fit.min) * inverse));
  }
  return codes;
}

}  // namespace skein::model
