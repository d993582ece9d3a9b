#include "model/quantize/make_blocks.h"

namespace skein::model {
namespace {

void PutFifthBits(const uint8_t* codes, uint8_t* out) {
  uint32_t bits = 0;
  for (int i = 0; i < 32; ++i) bits |= static_cast<uint32_t>(codes[i] >> 4 & 1) << i;
  std::memcpy(out, &bits, sizeof(bits));
}

// Of Q4_1 and Q5_1: the minimum is added.
template <int kMost>
ScaleMin FitHalves(Block in) {
  const ScaleMin fit = FitScaleMin<kMost>(in, true);
  return {Half(fit.scale), Half(fit.min)};
}

}  // namespace

void MakeQ4_0(Block in, uint8_t* out) {
  using Levels = Integers<-8, 7>;
  const float scale = Half(FitScale<Levels>(in));
  PutHalf(scale, out);
  PutNibbles(CodesAt<Levels>(in, scale).data(), out + 2);
}

void MakeQ5_0(Block in, uint8_t* out) {
  using Levels = Integers<-16, 15>;
  const float scale = Half(FitScale<Levels>(in));
  const Codes<32> codes = CodesAt<Levels>(in, scale);
  PutHalf(scale, out);
  PutFifthBits(codes.data(), out + 2);
  PutNibbles(codes.data(), out + 6);
}

void MakeQ8_0(Block in, uint8_t* out) {
  using Levels = Integers<-127, 127>;
  const float scale = Half(FitScale<Levels>(in));
  const Codes<32> codes = CodesAt<Levels>(in, scale);
  PutHalf(scale, out);
  for (int i = 0; i < 32; ++i) out[2 + i] = static_cast<uint8_t>(codes[i] - 127);
}

void MakeIq4Nl(Block in, uint8_t* out) {
  const float scale = Half(FitScale<Iq4Table>(in));
  PutHalf(scale, out);
  PutNibbles(CodesAt<Iq4Table>(in, scale).data(), out + 2);
}

void MakeQ4_1(Block in, uint8_t* out) {
  const ScaleMin fit = FitHalves<15>(in);
  PutHalf(fit.scale, out);
  PutHalf(-fit.min, out + 2);
  PutNibbles(CodesAt<15>(in, fit).data(), out + 4);
}

void MakeQ5_1(Block in, uint8_t* out) {
  const ScaleMin fit = FitHalves<31>(in);
  const Codes<32> codes = CodesAt<31>(in, fit);
  PutHalf(fit.scale, out);
  PutHalf(-fit.min, out + 2);
  PutFifthBits(codes.data(), out + 4);
  PutNibbles(codes.data(), out + 8);
}

}  // namespace skein::model
