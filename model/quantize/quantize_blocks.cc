#include "model/quantize/quantize_blocks.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <utility>

#include "base/quantized_blocks.h"

namespace skein::model {
namespace {

// Numbers in (-2^22, 2^22) lose their fraction when they are added to it.
float Round(float x) {
  constexpr float kShift = 12582912.0f;  // 1.5 * 2^23
  return (x + kShift) - kShift;
}

float Half(float x) { return F16ToFloat(FloatToF16(x)); }

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
  // By 2 * (x + 128), in which the middles between values are whole.
  static constexpr auto kCodes = [] {
    std::array<uint8_t, 512> codes = {};
    for (int twice = 0; twice < 512; ++twice) {
      for (int i = 0; i < 15; ++i) {
        if (twice - 256 >= kIq4Values[i] + kIq4Values[i + 1]) codes[twice] = i + 1;
      }
    }
    return codes;
  }();
  static int Code(float x) {
    return kCodes[static_cast<size_t>(2 * (std::clamp(x, -128.0f, 127.0f) + 128))];
  }
  static float Nearest(float x) { return static_cast<float>(kIq4Values[Code(x)]); }
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

// The scale d for which x is nearest to d * level; 0 for zeros.
template <typename Levels, int kCount>
float FitScale(Weighted<kCount> in) {
  float extreme = 0;
  for (int i = 0; i < kCount; ++i) {
    if (std::abs(in.x[i]) > std::abs(extreme)) extreme = in.x[i];
  }
  if (extreme == 0) return 0;
  constexpr int kSteps = 8;  // to either side
  ScaleSums best;
  for (int step = -kSteps; step <= kSteps; ++step) {
    const float level = Levels::kExtreme + Levels::kReach * static_cast<float>(step) / kSteps;
    for (const float scale : {extreme / level, -extreme / level}) {
      if (!std::isfinite(1 / scale)) continue;
      const ScaleSums sums = SumsAt<Levels>(in, scale);
      if (sums.gain() > best.gain()) best = sums;
      if (Levels::kSymmetric) break;
    }
  }
  constexpr int kRefits = 3;
  for (int i = 0; i < kRefits && best.Scale() != 0; ++i) {
    const ScaleSums sums = SumsAt<Levels>(in, best.Scale());
    if (sums.gain() <= best.gain()) break;
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

// The best scale and minimum for the roundings that `fit` leads to, by least squares.
template <int kMost, int kCount>
Refitted Refit(Weighted<kCount> in, ScaleMin fit, bool signed_min) {
  const float inverse = 1 / fit.scale;
  float w = 0, x = 0, q1 = 0, q2 = 0, xq = 0, xx = 0;
  for (int i = 0; i < kCount; ++i) {
    const float q = Integers<0, kMost>::Nearest((in.x[i] + fit.min) * inverse);
    const float wx = in.w[i] * in.x[i];
    const float wq = in.w[i] * q;
    w += in.w[i];
    x += wx;
    xx += wx * in.x[i];
    q1 += wq;
    q2 += wq * q;
    xq += wx * q;
  }
  const float determinant = w * q2 - q1 * q1;
  if (determinant <= 0) return {};
  ScaleMin best = {(w * xq - x * q1) / determinant, (q1 * xq - q2 * x) / determinant};
  if (best.min < 0 && !signed_min) best = {xq / q2, 0};
  if (best.scale <= 0) return {};
  return {best, xx - best.scale * xq + best.min * x};
}

// Without `signed_min`, minima are not negative.
template <int kMost, int kCount>
ScaleMin FitScaleMin(Weighted<kCount> in, bool signed_min) {
  float low = in.x[0], high = in.x[0];
  for (int i = 1; i < kCount; ++i) {
    low = std::min(low, in.x[i]);
    high = std::max(high, in.x[i]);
  }
  if (!signed_min) low = std::min(low, 0.0f);
  Refitted best = {.fit = {0, -low}};
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
  for (int i = 0; i < kRefits; ++i) {
    const Refitted refitted = Refit<kMost>(in, best.fit, signed_min);
    if (refitted.error >= best.error) break;
    best = refitted;
  }
  return best.fit;
}

void PutHalf(float value, uint8_t* out) {
  const uint16_t bits = FloatToF16(value);
  std::memcpy(out, &bits, sizeof(bits));
}

// Two codes a byte, of 32: element i + 16 is the upper one of byte i.
void PutNibbles(const uint8_t* codes, uint8_t* out) {
  for (int i = 0; i < 16; ++i) {
    out[i] = static_cast<uint8_t>((codes[i] & 15) | codes[i + 16] << 4);
  }
}

void PutFifthBits(const uint8_t* codes, uint8_t* out) {
  uint32_t bits = 0;
  for (int i = 0; i < 32; ++i) bits |= static_cast<uint32_t>(codes[i] >> 4 & 1) << i;
  std::memcpy(out, &bits, sizeof(bits));
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

using Block = Weighted<32>;

void Q4_0(Block in, uint8_t* out) {
  using Levels = Integers<-8, 7>;
  const float scale = Half(FitScale<Levels>(in));
  PutHalf(scale, out);
  PutNibbles(CodesAt<Levels>(in, scale).data(), out + 2);
}

void Q5_0(Block in, uint8_t* out) {
  using Levels = Integers<-16, 15>;
  const float scale = Half(FitScale<Levels>(in));
  const Codes<32> codes = CodesAt<Levels>(in, scale);
  PutHalf(scale, out);
  PutFifthBits(codes.data(), out + 2);
  PutNibbles(codes.data(), out + 6);
}

void Q8_0(Block in, uint8_t* out) {
  using Levels = Integers<-127, 127>;
  const float scale = Half(FitScale<Levels>(in));
  const Codes<32> codes = CodesAt<Levels>(in, scale);
  PutHalf(scale, out);
  for (int i = 0; i < 32; ++i) out[2 + i] = static_cast<uint8_t>(codes[i] - 127);
}

void Iq4Nl(Block in, uint8_t* out) {
  const float scale = Half(FitScale<Iq4Table>(in));
  PutHalf(scale, out);
  PutNibbles(CodesAt<Iq4Table>(in, scale).data(), out + 2);
}

// Of Q4_1 and Q5_1: the minimum is added.
template <int kMost>
ScaleMin FitHalves(Block in) {
  const ScaleMin fit = FitScaleMin<kMost>(in, true);
  return {Half(fit.scale), Half(fit.min)};
}

void Q4_1(Block in, uint8_t* out) {
  const ScaleMin fit = FitHalves<15>(in);
  PutHalf(fit.scale, out);
  PutHalf(-fit.min, out + 2);
  PutNibbles(CodesAt<15>(in, fit).data(), out + 4);
}

void Q5_1(Block in, uint8_t* out) {
  const ScaleMin fit = FitHalves<31>(in);
  const Codes<32> codes = CodesAt<31>(in, fit);
  PutHalf(fit.scale, out);
  PutHalf(-fit.min, out + 2);
  PutFifthBits(codes.data(), out + 4);
  PutNibbles(codes.data(), out + 8);
}

// A superblock whose elements are d * scale of the subblock * level.
template <typename Levels, int kSubblocks>
struct Scaled {
  static constexpr int kCount = 256 / kSubblocks;
  using Sub = Weighted<kCount>;
  float d = 0;  // an F16
  std::array<int, kSubblocks> scales = {};
  Codes<256> codes;

  static float ErrorAt(Sub in, float scale) {
    const float inverse = scale == 0 ? 0 : 1 / scale;
    float error = 0;
    for (int i = 0; i < kCount; ++i) {
      const float off = scale * Levels::Nearest(in.x[i] * inverse) - in.x[i];
      error += in.w[i] * off * off;
    }
    return error;
  }

  // Integer scales lie in [least, most]; -least >= most.
  Scaled(Weighted<256> in, int least, int most) {
    std::array<float, kSubblocks> fits;
    float extreme = 0;
    for (int j = 0; j < kSubblocks; ++j) {
      fits[j] = FitScale<Levels>(At(in, j));
      if (std::abs(fits[j]) > std::abs(extreme)) extreme = fits[j];
    }
    d = Half(extreme / static_cast<float>(least));
    constexpr int kRefits = 2;
    for (int round = 0; round < kRefits && d != 0; ++round) {
      for (int j = 0; j < kSubblocks; ++j) scales[j] = BestScale(At(in, j), fits[j], least, most);
      const float refitted = Half(RefitD(in));
      if (refitted == 0 || refitted == d) break;
      d = refitted;
    }
    for (int j = 0; j < kSubblocks; ++j) {
      if (d != 0) scales[j] = BestScale(At(in, j), fits[j], least, most);
      const Codes<kCount> sub = CodesAt<Levels>(At(in, j), d * static_cast<float>(scales[j]));
      std::copy(sub.begin(), sub.end(), codes.begin() + j * kCount);
    }
  }

  static Sub At(Weighted<256> in, int j) { return {in.x + j * kCount, in.w + j * kCount}; }

  // Of those around `fit`.
  int BestScale(Sub in, float fit, int least, int most) const {
    const int near = static_cast<int>(
        Round(std::clamp(fit / d, static_cast<float>(least), static_cast<float>(most))));
    int best = 0;
    float least_error = ErrorAt(in, 0);
    for (int scale = std::max(near - 2, least); scale <= std::min(near + 2, most); ++scale) {
      const float error = ErrorAt(in, d * static_cast<float>(scale));
      if (error >= least_error) continue;
      least_error = error;
      best = scale;
    }
    return best;
  }

  float RefitD(Weighted<256> in) const {
    ScaleSums all;
    for (int j = 0; j < kSubblocks; ++j) {
      if (scales[j] == 0) continue;
      const auto scale = static_cast<float>(scales[j]);
      const ScaleSums sums = SumsAt<Levels>(At(in, j), d * scale);
      all.xq += scale * sums.xq;
      all.qq += scale * scale * sums.qq;
    }
    return all.Scale();
  }
};

// A superblock whose elements are d * scale of the subblock * q - m * its minimum.
template <int kMost, int kSubblocks, int kMostScale>
struct ScaledWithMin {
  static constexpr int kCount = 256 / kSubblocks;
  using Sub = Weighted<kCount>;
  float d = 0;  // F16s
  float m = 0;
  std::array<int, kSubblocks> scales = {};
  std::array<int, kSubblocks> mins = {};
  Codes<256> codes;

  explicit ScaledWithMin(Weighted<256> in) {
    std::array<ScaleMin, kSubblocks> fits;
    ScaleMin largest;
    for (int j = 0; j < kSubblocks; ++j) {
      fits[j] = FitScaleMin<kMost>(At(in, j), false);
      largest.scale = std::max(largest.scale, fits[j].scale);
      largest.min = std::max(largest.min, fits[j].min);
    }
    d = Half(largest.scale / kMostScale);
    m = Half(largest.min / kMostScale);
    constexpr int kRefits = 2;
    for (int round = 0; round < kRefits; ++round) {
      for (int j = 0; j < kSubblocks; ++j) Choose(At(in, j), fits[j], j);
      const ScaleMin refitted = RefitBoth(in);
      if (refitted.scale == d && refitted.min == m) break;
      d = refitted.scale;
      m = refitted.min;
    }
    for (int j = 0; j < kSubblocks; ++j) {
      Choose(At(in, j), fits[j], j);
      const Codes<kCount> sub = CodesAt<kMost>(At(in, j), Of(scales[j], mins[j]));
      std::copy(sub.begin(), sub.end(), codes.begin() + j * kCount);
    }
  }

  static Sub At(Weighted<256> in, int j) { return {in.x + j * kCount, in.w + j * kCount}; }

  ScaleMin Of(int scale, int min) const {
    return {d * static_cast<float>(scale), m * static_cast<float>(min)};
  }

  // The best integers around the fit, or zeros, where d and m are too coarse for it.
  void Choose(Sub in, ScaleMin fit, int j) {
    const auto near = [](float x, float unit) {
      return unit == 0 ? 0 : static_cast<int>(Round(std::clamp<float>(x / unit, 0, kMostScale)));
    };
    const int scale = near(fit.scale, d);
    const int min = near(fit.min, m);
    scales[j] = mins[j] = 0;
    float least = ErrorAt<kMost>(in, {});
    for (int s = std::max(scale - 1, 0); s <= std::min(scale + 1, kMostScale); ++s) {
      for (int o = std::max(min - 1, 0); o <= std::min(min + 1, kMostScale); ++o) {
        const float error = ErrorAt<kMost>(in, Of(s, o));
        if (error >= least) continue;
        least = error;
        scales[j] = s;
        mins[j] = o;
      }
    }
  }

  // d and m that are best for the roundings that they lead to; those that are, where none are.
  ScaleMin RefitBoth(Weighted<256> in) const {
    double aa = 0, ab = 0, bb = 0, xa = 0, xb = 0;  // of a = scale * q and b = -minimum
    for (int j = 0; j < kSubblocks; ++j) {
      const ScaleMin fit = Of(scales[j], mins[j]);
      const float inverse = fit.scale > 0 ? 1 / fit.scale : 0;
      const Sub sub = At(in, j);
      const auto b = static_cast<float>(-mins[j]);
      for (int i = 0; i < kCount; ++i) {
        const float q = Integers<0, kMost>::Nearest((sub.x[i] + fit.min) * inverse);
        const float a = static_cast<float>(scales[j]) * q;
        aa += sub.w[i] * a * a;
        ab += sub.w[i] * a * b;
        bb += sub.w[i] * b * b;
        xa += sub.w[i] * sub.x[i] * a;
        xb += sub.w[i] * sub.x[i] * b;
      }
    }
    ScaleMin best = {d, m};
    const double determinant = aa * bb - ab * ab;
    if (determinant > 1e-6 * aa * bb) {
      best = {static_cast<float>((xa * bb - xb * ab) / determinant),
              static_cast<float>((xb * aa - xa * ab) / determinant)};
    } else if (aa > 0) {
      best = {static_cast<float>((xa - m * ab) / aa), m};
    }
    best = {Half(best.scale), Half(best.min)};
    return best.scale > 0 && best.min >= 0 ? best : ScaleMin{d, m};
  }
};

using Superblock = Weighted<256>;

// By quarters of 64 elements, 32 bytes each, low halves first.
void PutQuarters(const Codes<256>& codes, uint8_t* out) {
  for (int i = 0; i < 256; ++i) {
    uint8_t& byte = out[i / 64 * 32 + i % 32];
    if (i % 64 < 32) {
      byte = codes[i] & 15;
    } else {
      byte = static_cast<uint8_t>(byte | codes[i] << 4);
    }
  }
}

// Two bits of each, by halves of 128 elements in 32 bytes; `shift` leads to these bits.
void PutPairs(const Codes<256>& codes, int shift, uint8_t* out) {
  std::fill_n(out, 64, 0);
  for (int i = 0; i < 256; ++i) {
    out[i / 128 * 32 + i % 32] |= (codes[i] >> shift & 3) << i % 128 / 32 * 2;
  }
}

// The 12 bytes of eight scales and eight minima.
void PutSixBits(const std::array<int, 8>& scales, const std::array<int, 8>& mins, uint8_t* out) {
  for (int i = 0; i < 4; ++i) {
    out[i] = static_cast<uint8_t>(scales[i] | scales[i + 4] >> 4 << 6);
    out[i + 4] = static_cast<uint8_t>(mins[i] | mins[i + 4] >> 4 << 6);
    out[i + 8] = static_cast<uint8_t>((scales[i + 4] & 15) | (mins[i + 4] & 15) << 4);
  }
}

void Q2_K(Superblock in, uint8_t* out) {
  const ScaledWithMin<3, 16, 15> made(in);
  for (int j = 0; j < 16; ++j) {
    out[j] = static_cast<uint8_t>(made.scales[j] | made.mins[j] << 4);
  }
  PutPairs(made.codes, 0, out + 16);
  PutHalf(made.d, out + 80);
  PutHalf(made.m, out + 82);
}

void Q3_K(Superblock in, uint8_t* out) {
  const Scaled<Integers<-4, 3>, 16> made(in, -32, 31);
  std::fill_n(out, 32, 0);
  for (int i = 0; i < 256; ++i) out[i % 32] |= (made.codes[i] >> 2 & 1) << i / 32;
  PutPairs(made.codes, 0, out + 32);
  // Scale s has its low four bits in byte s % 8, its upper two in byte 8 + s % 4.
  uint8_t* const packed = out + 96;
  std::fill_n(packed, 12, 0);
  for (int s = 0; s < 16; ++s) {
    const int scale = made.scales[s] + 32;
    packed[s % 8] |= (scale & 15) << s / 8 * 4;
    packed[8 + s % 4] |= (scale >> 4) << s / 4 * 2;
  }
  PutHalf(made.d, out + 108);
}

void Q4_K(Superblock in, uint8_t* out) {
  const ScaledWithMin<15, 8, 63> made(in);
  PutHalf(made.d, out);
  PutHalf(made.m, out + 2);
  PutSixBits(made.scales, made.mins, out + 4);
  PutQuarters(made.codes, out + 16);
}

void Q5_K(Superblock in, uint8_t* out) {
  const ScaledWithMin<31, 8, 63> made(in);
  PutHalf(made.d, out);
  PutHalf(made.m, out + 2);
  PutSixBits(made.scales, made.mins, out + 4);
  std::fill_n(out + 16, 32, 0);
  for (int i = 0; i < 256; ++i) out[16 + i % 32] |= (made.codes[i] >> 4 & 1) << i / 32;
  PutQuarters(made.codes, out + 48);
}

void Q6_K(Superblock in, uint8_t* out) {
  const Scaled<Integers<-32, 31>, 16> made(in, -128, 127);
  std::fill_n(out, 128, 0);
  for (int i = 0; i < 256; ++i) {
    out[i / 128 * 64 + i % 64] |= (made.codes[i] & 15) << i % 128 / 64 * 4;
  }
  PutPairs(made.codes, 4, out + 128);
  for (int j = 0; j < 16; ++j) out[192 + j] = static_cast<uint8_t>(made.scales[j]);
  PutHalf(made.d, out + 208);
}

void Iq4Xs(Superblock in, uint8_t* out) {
  const Scaled<Iq4Table, 8> made(in, -32, 31);
  PutHalf(made.d, out);
  std::fill_n(out + 2, 6, 0);
  for (int j = 0; j < 8; ++j) {
    const int scale = made.scales[j] + 32;
    out[2 + j / 4] |= (scale >> 4) << j % 4 * 2;
    out[4 + j / 2] |= (scale & 15) << j % 2 * 4;
    PutNibbles(made.codes.data() + j * 32, out + 8 + j * 16);
  }
}

// Makes blocks of kCount elements, one by one.
template <int kCount>
void Each(void (*make)(Weighted<kCount>, uint8_t*), int64_t block_bytes, const float* in,
          const float* importance, int64_t blocks, uint8_t* out) {
  std::array<float, kCount> weights;
  for (int64_t b = 0; b < blocks; ++b, in += kCount, out += block_bytes) {
    float squares = 0;
    for (int i = 0; i < kCount; ++i) squares += in[i] * in[i];
    for (int i = 0; i < kCount; ++i) {
      const float important = importance == nullptr ? 1 : importance[b * kCount + i];
      weights[i] = important * std::sqrt(squares / kCount + in[i] * in[i]);
    }
    if (squares == 0) weights.fill(1);
    make({in, weights.data()}, out);
  }
}

}  // namespace

bool CanQuantize(DType dtype) {
  return IsQuantized(dtype) && dtype != DType::kFp8 && dtype != DType::kInt8 &&
         dtype != DType::kInt4;
}

void QuantizeBlocks(DType dtype, const float* in, const float* importance, int64_t blocks,
                    void* out) {
  const auto small = [&](void (*make)(Block, uint8_t*)) {
    Each(make, BlockBytes(dtype), in, importance, blocks, static_cast<uint8_t*>(out));
  };
  const auto super = [&](void (*make)(Superblock, uint8_t*)) {
    Each(make, BlockBytes(dtype), in, importance, blocks, static_cast<uint8_t*>(out));
  };
  switch (dtype) {
    case DType::kQ4_0:
      return small(Q4_0);
    case DType::kQ4_1:
      return small(Q4_1);
    case DType::kQ5_0:
      return small(Q5_0);
    case DType::kQ5_1:
      return small(Q5_1);
    case DType::kQ8_0:
      return small(Q8_0);
    case DType::kIQ4_NL:
      return small(Iq4Nl);
    case DType::kQ2_K:
      return super(Q2_K);
    case DType::kQ3_K:
      return super(Q3_K);
    case DType::kQ4_K:
      return super(Q4_K);
    case DType::kQ5_K:
      return super(Q5_K);
    case DType::kQ6_K:
      return super(Q6_K);
    case DType::kIQ4_XS:
      return super(Iq4Xs);
    default:
      return;
  }
}

}  // namespace skein::model
