#include "model/quantize/quantize_blocks.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "model/quantize/make_blocks.h"

namespace skein::model {
namespace {

// The weights of squared errors, at most 1. Sums of these in floats tell small errors as long as no
// element weighs a millionth of another.
template <int kCount>
void Weigh(const float* in, const float* importance, float* weights) {
  constexpr float kLeast = 1e-4f;
  float squares = 0;
  for (int i = 0; i < kCount; ++i) squares += in[i] * in[i];
  float most = 0;
  for (int i = 0; i < kCount; ++i) {
    const float important = importance == nullptr ? 1 : importance[i];
    weights[i] = important * std::sqrt(squares / kCount + in[i] * in[i]);
    most = std::max(most, weights[i]);
  }
  if (!(most > 0) || !std::isfinite(most)) {
    std::fill_n(weights, kCount, 1.0f);
    return;
  }
  for (int i = 0; i < kCount; ++i) weights[i] = std::max(weights[i] / most, kLeast);
}

// Makes blocks of kCount elements, one by one.
template <int kCount>
void Each(void (*make)(Weighted<kCount>, uint8_t*), int64_t block_bytes, const float* in,
          const float* importance, int64_t blocks, uint8_t* out) {
  std::array<float, kCount> weights;
  for (int64_t b = 0; b < blocks; ++b, in += kCount, out += block_bytes) {
    Weigh<kCount>(in, importance == nullptr ? nullptr : importance + b * kCount, weights.data());
    make({in, weights.data()}, out);
  }
}

}  // namespace

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
      return small(MakeQ4_0);
    case DType::kQ4_1:
      return small(MakeQ4_1);
    case DType::kQ5_0:
      return small(MakeQ5_0);
    case DType::kQ5_1:
      return small(MakeQ5_1);
    case DType::kQ8_0:
      return small(MakeQ8_0);
    case DType::kIQ4_NL:
      return small(MakeIq4Nl);
    case DType::kQ2_K:
      return super(MakeQ2_K);
    case DType::kQ3_K:
      return super(MakeQ3_K);
    case DType::kQ4_K:
      return super(MakeQ4_K);
    case DType::kQ5_K:
      return super(MakeQ5_K);
    case DType::kQ6_K:
      return super(MakeQ6_K);
    case DType::kIQ4_XS:
      return super(MakeIq4Xs);
    default:
      return;
  }
}

}  // namespace skein::model
