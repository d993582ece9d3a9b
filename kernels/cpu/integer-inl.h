// Multiplies one tile of quantised blocks with rows of integers. Included once per instruction set.
//
// Integers are multiplied and summed exactly within a block, so that every instruction set gives
// the same sums; then they are scaled and added in float, block by block, each of a tile's rows in
// a lane of its own.
#if defined(SKEIN_KERNELS_CPU_INTEGER_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SKEIN_KERNELS_CPU_INTEGER_INL_H_
#undef SKEIN_KERNELS_CPU_INTEGER_INL_H_
#else
#define SKEIN_KERNELS_CPU_INTEGER_INL_H_
#endif

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/dtype.h"
#include "hwy/highway.h"
#include "kernels/cpu/math-inl.h"
#include "kernels/cpu/matmul-inl.h"
#include "kernels/cpu/simd_ops.h"
#include "kernels/cpu/unpack-inl.h"
#include "kernels/packing/layout.h"
#include "kernels/packing/quantized_rows.h"

HWY_BEFORE_NAMESPACE();
namespace skein::kernels::HWY_NAMESPACE {

using IntVec = hn::Vec<IntTag>;

// Writes in [n] as row `row` of `out`.
void QuantizeRow(const float* in, int64_t n, const QuantizedRows& out, int64_t row) {
  const FloatTag d;
  const IntTag di;
  const hn::Rebind<int8_t, IntTag> d8;
  static_assert(kScaledCols == 2 * kLanes && kSummedCols == kLanes);
  float* const scales = out.scales(row);
  int32_t* const sums = out.sums(row);
  int8_t* const integers = out.integers(row);
  for (int64_t k = 0; k < n; k += kScaledCols) {
    Vec largest = hn::Zero(d);
    for (int64_t i = 0; i < kScaledCols; i += kWidth) {
      largest = hn::Max(largest, hn::Abs(hn::LoadU(d, in + k + i)));
    }
    const float most = hn::GetLane(hn::MaxOfLanes(d, largest));
    scales[k / kScaledCols] = most / kMostInteger;
    const Vec factor = hn::Set(d, most > 0 ? kMostInteger / most : 0.0f);
    for (int64_t i = 0; i < kScaledCols; i += kSummedCols) {
      IntVec sum = hn::Zero(di);
      for (int64_t j = i; j < i + kSummedCols; j += kWidth) {
        const IntVec nearest = hn::NearestInt(hn::Mul(hn::LoadU(d, in + k + j), factor));
        sum = hn::Add(sum, nearest);
        hn::StoreU(hn::DemoteTo(d8, nearest), d8, integers + k + j);
      }
      sums[(k + i) / kSummedCols] = hn::GetLane(hn::SumOfLanes(di, sum));
    }
  }
}

// The largest magnitude of a type's numbers q.
template <DType kType>
constexpr int MostOf() {
  switch (kType) {
    case DType::kQ2_K:
      return 3;
    case DType::kQ3_K:
      return 7;
    case DType::kQ4_0:
    case DType::kQ4_1:
    case DType::kQ4_K:
      return 15;
    case DType::kQ5_0:
    case DType::kQ5_1:
    case DType::kQ5_K:
      return 31;
    case DType::kQ6_K:
      return 63;
    default:
      return 128;  // signed bytes
  }
}

// In each lane the sum of kWords times four products of a word's bytes of q with those of x, which
// all lanes share. Exact.
template <DType kType, int kWords>
HWY_INLINE IntVec SumProducts(const Words* quads, const int32_t* x) {
  const IntTag di;
  constexpr bool kSigned = Blocks<kType>::kSigned;
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3
  // Pairs of products are summed in 16 bits, and as many of these as fit; then in 32.
  constexpr int kPairsFit = std::max(1, 32767 / (2 * MostOf<kType>() * kMostInteger));
  auto sum = hn::Zero(di);
  for (int i = 0; i < kWords; i += kPairsFit) {
    auto pairs = hn::Zero(di);
    for (int j = i; j < std::min(i + kPairsFit, kWords); ++j) {
      const auto factor = hn::Set(di, x[j]);
#if HWY_TARGET == HWY_AVX2
      if constexpr (kSigned) {
        const __m256i signs = _mm256_sign_epi8(factor.raw, quads[j].raw);
        pairs.raw =
            _mm256_add_epi16(pairs.raw, _mm256_maddubs_epi16(_mm256_abs_epi8(quads[j].raw), signs));
      } else {
        pairs.raw = _mm256_add_epi16(pairs.raw, _mm256_maddubs_epi16(quads[j].raw, factor.raw));
      }
#else
      if constexpr (kSigned) {
        const __m512i signs = _mm512_mask_sub_epi8(factor.raw, _mm512_movepi8_mask(quads[j].raw),
                                                   _mm512_setzero_si512(), factor.raw);
        pairs.raw =
            _mm512_add_epi16(pairs.raw, _mm512_maddubs_epi16(_mm512_abs_epi8(quads[j].raw), signs));
      } else {
        pairs.raw = _mm512_add_epi16(pairs.raw, _mm512_maddubs_epi16(quads[j].raw, factor.raw));
      }
#endif
    }
#if HWY_TARGET == HWY_AVX2
    sum.raw = _mm256_add_epi32(sum.raw, _mm256_madd_epi16(pairs.raw, _mm256_set1_epi16(1)));
#else
    sum.raw = _mm512_add_epi32(sum.raw, _mm512_madd_epi16(pairs.raw, _mm512_set1_epi16(1)));
#endif
  }
  return sum;
#else
  auto sum = hn::Zero(di);
  for (int i = 0; i < kWords; ++i) {
    for (int byte = 0; byte < 4; ++byte) {
      auto q = hn::ShiftRightSame(quads[i], 8 * byte);
      q = hn::And(q, hn::Set(WordTag(), 0xFFu));
      auto number = hn::BitCast(di, q);
      if (kSigned) number = hn::ShiftRight<24>(hn::ShiftLeft<24>(number));
      const auto factor = static_cast<int8_t>(static_cast<uint32_t>(x[i]) >> (8 * byte));
      sum = hn::Add(sum, hn::Mul(number, hn::Set(di, factor)));
    }
  }
  return sum;
#endif
}

// Adds to acc [rows, kTileRows] the products with 32 columns from `k`, for a vector of the tile's
// rows from `tile_row`.
template <DType kType>
HWY_INLINE void MultiplySub(const TileProduct& p, int64_t k, int64_t tile_row, int64_t first_row,
                            int64_t rows, float* acc) {
  using B = Blocks<kType>;
  const FloatTag d;
  const IntTag di;
  constexpr int kScaleParts = 32 / B::kScaleCols;
  constexpr int kWords = 8 / kScaleParts;
  constexpr int64_t kElements = BlockElements(kType);
  const UnitRows<kType> unit(p.tile + k / kElements * UnitBytes(kType), tile_row);
  const int64_t sub = k % kElements / 32;
  ScaleOf scales[kScaleParts];
  for (int part = 0; part < kScaleParts; ++part) {
    scales[part] = B::ScaleAt(unit, sub * kScaleParts + part);
  }
  Words quads[8];
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) quads[i] = B::Quad(unit, sub, i);
  for (int64_t r = 0; r < rows; ++r) {
    const int64_t row = first_row + r;
    const auto* x = reinterpret_cast<const int32_t*>(p.integers.integers(row) + k);
    const int32_t* const sums = p.integers.sums(row) + k / kSummedCols;
    const float scale = p.integers.scales(row)[k / kScaledCols];
    float* const at = acc + r * kTileRows + tile_row;
    Vec total = hn::LoadU(d, at);
#pragma GCC unroll 2
    for (int part = 0; part < kScaleParts; ++part) {
      const int32_t sum = kScaleParts == 2 ? sums[part] : sums[0] + sums[1];
      IntVec products = SumProducts<kType, kWords>(quads + part * kWords, x + part * kWords);
      if constexpr (!B::kHasMin) {
        products = hn::Sub(products, hn::Set(di, static_cast<int32_t>(B::kOffset) * sum));
      }
      const Vec both = hn::Mul(scales[part].scale, hn::Set(d, scale));
      total = hn::MulAdd(both, hn::ConvertTo(d, products), total);
      if constexpr (B::kHasMin) {
        const float scaled_sum = scale * static_cast<float>(sum);
        total = hn::NegMulAdd(scales[part].min, hn::Set(d, scaled_sum), total);
      }
    }
    hn::StoreU(total, d, at);
  }
}

// Sums of inner blocks join as MultiplyPairs' do, [levels][rows, kTileRows].
template <DType kType>
void MultiplyIntegers(const TileProduct& p) {
  alignas(64) float sums[kMaxLevels * kLevel];
  const FloatTag d;
  const int64_t begin = p.part * p.rows / p.parts;
  const int64_t end = (p.part + 1) * p.rows / p.parts;
  // An iteration of the loop over vectors fetches what that of as many bytes further reads.
  constexpr int64_t kStep = UnitBytes(kType) / (BlockElements(kType) / 32) / (kTileRows / kWidth);
  for (int64_t first = begin; first < end; first += kGroupRows) {
    const int64_t rows = std::min(kGroupRows, end - first);
    for (int32_t block = 0; block < p.inner_blocks; ++block) {
      const int level = std::popcount(static_cast<uint32_t>(block));
      float* const acc = sums + level * kLevel;
      std::fill_n(acc, rows * kTileRows, 0.0f);
      for (int64_t k = BlockBegin(p, block); k < BlockBegin(p, block + 1); k += 32) {
        const std::byte* soon = p.tile + k / 32 * (kTileRows / kWidth) * kStep + kPrefetchBytes;
        for (int64_t row = 0; row < kTileRows; row += kWidth, soon += kStep) {
          for (int64_t line = 0; line < kStep; line += 64) __builtin_prefetch(soon + line);
          MultiplySub<kType>(p, k, row, first, rows, acc);
        }
      }
      const bool last = block + 1 == p.inner_blocks;
      const int joins = last ? level : std::countr_one(static_cast<uint32_t>(block));
      for (int join = 0; join < joins; ++join) {
        float* const right = sums + (level - join) * kLevel;
        float* const left = right - kLevel;
        for (int64_t i = 0; i < rows * kTileRows; i += kWidth) {
          hn::StoreU(hn::Add(hn::LoadU(d, left + i), hn::LoadU(d, right + i)), d, left + i);
        }
      }
    }
    for (int64_t r = 0; r < rows; ++r) {
      std::memcpy(p.out + (first + r) * p.out_stride, sums + r * kTileRows,
                  p.out_cols * sizeof(float));
    }
  }
}

}  // namespace skein::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // SKEIN_KERNELS_CPU_INTEGER_INL_H_
