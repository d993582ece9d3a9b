#include "model/quantize/make_blocks.h"

namespace skein::model {
namespace {

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

}  // namespace

void MakeQ2_K(Superblock in, uint8_t* out) {
  const ScaledWithMin<3, 16, 15> made(in);
  for (int j = 0; j < 16; ++j) {
    out[j] = static_cast<uint8_t>(made.scales[j] | made.mins[j] << 4);
  }
  PutPairs(made.codes, 0, out + 16);
  PutHalf(made.d, out + 80);
  PutHalf(made.m, out + 82);
}

void MakeQ3_K(Superblock in, uint8_t* out) {
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

void MakeQ4_K(Superblock in, uint8_t* out) {
  const ScaledWithMin<15, 8, 63> made(in);
  PutHalf(made.d, out);
  PutHalf(made.m, out + 2);
  PutSixBits(made.scales, made.mins, out + 4);
  PutQuarters(made.codes, out + 16);
}

void MakeQ5_K(Superblock in, uint8_t* out) {
  const ScaledWithMin<31, 8, 63> made(in);
  PutHalf(made.d, out);
  PutHalf(made.m, out + 2);
  PutSixBits(made.scales, made.mins, out + 4);
  std::fill_n(out + 16, 32, 0);
  for (int i = 0; i < 256; ++i) out[16 + i % 32] |= (made.codes[i] >> 4 & 1) << i / 32;
  PutQuarters(made.codes, out + 48);
}

void MakeQ6_K(Superblock in, uint8_t* out) {
  const Scaled<Integers<-32, 31>, 16> made(in, -128, 127);
  std::fill_n(out, 128, 0);
  for (int i = 0; i < 256; ++i) {
    out[i / 128 * 64 + i % 64] |= (made.codes[i] & 15) << i % 128 / 64 * 4;
  }
  PutPairs(made.codes, 4, out + 128);
  for (int j = 0; j < 16; ++j) out[192 + j] = static_cast<uint8_t>(made.scales[j]);
  PutHalf(made.d, out + 208);
}

void MakeIq4Xs(Superblock in, uint8_t* out) {
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

}  // namespace skein::model
