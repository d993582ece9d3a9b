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
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>

#include "base/dtype.h"
#include "hwy/highway.h"
#include "kernels/cpu/math-inl.h"
#include "kernels/cpu/matmul-inl.h"
#include "kernels/cpu/simd_ops.h"
#include "kernels/cpu/unpack-inl.h"
#include "kernels/packing/layout.h"
#include "kernels/packing/quantized_rows.h"

HWY_BEFORE_NAMESPACE();
#if HWY_TARGET == HWY_AVX3_DL
#pragma GCC target("avx512vnni")  // CPUs of this target have it; Highway does not tell the compiler
#endif
namespace skein::kernels::HWY_NAMESPACE {

using IntVec = hn::Vec<IntTag>;

// Writes in [n] as row `row` of `out`.
void QuantizeRow(const float* in, int64_t n, const QuantizedRows& out, int64_t row) {
  const FloatTag d;
  const IntTag di;
  const WordTag du;
  const hn::Rebind<int8_t, IntTag> d8;
  static_assert(kScaledCols == 2 * kLanes && kSummedCols == kLanes);
  float* const scales = out.scales(row);
  int32_t* const sums = out.sums(row);
  int8_t* const integers = out.integers(row);
  for (int64_t k = 0; k < n; k += kScaledCols) {
    // Magnitudes go by their bits, of which those of a NaN are the largest.
    Words largest = hn::Zero(du);
    for (int64_t i = 0; i < kScaledCols; i += kWidth) {
      largest = hn::Max(largest, hn::BitCast(du, hn::Abs(hn::LoadU(d, in + k + i))));
    }
    const float most = std::bit_cast<float>(hn::GetLane(hn::MaxOfLanes(du, largest)));
    const bool zeros = !(most > kLeastMagnitude && most <= std::numeric_limits<float>::max());
    scales[k / kScaledCols] = most <= kLeastMagnitude ? 0 : zeros ? NAN : most / kMostInteger;
    if (zeros) {
      std::fill_n(integers + k, kScaledCols, int8_t{0});
      std::fill_n(sums + k / kSummedCols, kScaledCols / kSummedCols, 0);
      continue;
    }
    const Vec factor = hn::Set(d, kMostInteger / most);
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
    case DType::kInt4:
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

// VNNI multiplies unsigned bytes by signed ones. There signed q are taken as q + 128, and what that
// adds to sums is subtracted.
template <DType kType>
constexpr int AddedToSigned() {
  return Blocks<kType>::kSigned && HWY_TARGET == HWY_AVX3_DL ? 128 : 0;
}

// Four numbers q a word, of 8 words: as bytes without a sign, or signed ones with their magnitudes.
template <DType kType>
struct Quads {
  Words q[8];
  Words magnitude[8];

  HWY_INLINE Quads(const UnitRows<kType>& unit, int64_t sub) {
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) {
      q[i] = Blocks<kType>::Quad(unit, sub, i);
      if constexpr (Blocks<kType>::kSigned) {
#if HWY_TARGET == HWY_AVX2
        magnitude[i].raw = _mm256_abs_epi8(q[i].raw);
#elif HWY_TARGET == HWY_AVX3
        magnitude[i].raw = _mm512_abs_epi8(q[i].raw);
#elif HWY_TARGET == HWY_AVX3_DL
        q[i] = hn::Xor(q[i], hn::Set(WordTag(), 0x80808080u));
#endif
      }
    }
  }
};

#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3
// Sums of two products of bytes each, in 16 bits, of word i and the bytes of x, which all lanes
// share.
template <DType kType>
HWY_INLINE IntVec PairSums(const Quads<kType>& quads, int i, int32_t x) {
  IntVec factor = hn::Set(IntTag(), x);
  IntVec pairs;
#if HWY_TARGET == HWY_AVX2
  if constexpr (Blocks<kType>::kSigned) {
    factor.raw = _mm256_sign_epi8(factor.raw, quads.q[i].raw);
    pairs.raw = _mm256_maddubs_epi16(quads.magnitude[i].raw, factor.raw);
  } else {
    pairs.raw = _mm256_maddubs_epi16(quads.q[i].raw, factor.raw);
  }
#else
  if constexpr (Blocks<kType>::kSigned) {
    factor.raw = _mm512_mask_sub_epi8(factor.raw, _mm512_movepi8_mask(quads.q[i].raw),
                                      _mm512_setzero_si512(), factor.raw);
    pairs.raw = _mm512_maddubs_epi16(quads.magnitude[i].raw, factor.raw);
  } else {
    pairs.raw = _mm512_maddubs_epi16(quads.q[i].raw, factor.raw);
  }
#endif
  return pairs;
}

HWY_INLINE IntVec AddPairs(IntVec a, IntVec b) {
  const hn::Repartition<int16_t, IntTag> d16;
  return hn::BitCast(IntTag(), hn::Add(hn::BitCast(d16, a), hn::BitCast(d16, b)));
}
HWY_INLINE IntVec WidenPairs(IntVec pairs) {
#if HWY_TARGET == HWY_AVX2
  pairs.raw = _mm256_madd_epi16(pairs.raw, _mm256_set1_epi16(1));
#else
  pairs.raw = _mm512_madd_epi16(pairs.raw, _mm512_set1_epi16(1));
#endif
  return pairs;
}

// In each lane the sum of four products for each of kWords words from kFirst, with the bytes of x.
// Exact: as many pairs as fit are summed in 16 bits.
template <DType kType, int kFirst, int kWords>
HWY_INLINE IntVec SumProducts(const Quads<kType>& quads, const int32_t* x) {
  // No more than four: chains of additions wait for themselves.
  constexpr int kPairsFit = std::clamp(32767 / (2 * MostOf<kType>() * kMostInteger), 1, 4);
  IntVec sum = hn::Zero(IntTag());
#pragma GCC unroll 8
  for (int i = kFirst; i < kFirst + kWords; i += kPairsFit) {
    IntVec pairs = PairSums(quads, i, x[i]);
#pragma GCC unroll 8
    for (int j = i + 1; j < std::min(i + kPairsFit, kFirst + kWords); ++j) {
      pairs = AddPairs(pairs, PairSums(quads, j, x[j]));
    }
    sum = hn::Add(sum, WidenPairs(pairs));
  }
  return sum;
}
#elif HWY_TARGET == HWY_AVX3_DL
template <DType kType, int kFirst, int kWords>
HWY_INLINE IntVec SumProducts(const Quads<kType>& quads, const int32_t* x) {
  IntVec sums[2] = {hn::Zero(IntTag()), hn::Zero(IntTag())};  // a chain waits for itself
#pragma GCC unroll 8
  for (int i = kFirst; i < kFirst + kWords; ++i) {
    sums[i % 2].raw = _mm512_dpbusd_epi32(sums[i % 2].raw, quads.q[i].raw, _mm512_set1_epi32(x[i]));
  }
  return hn::Add(sums[0], sums[1]);
}
#else
template <DType kType, int kFirst, int kWords>
HWY_INLINE IntVec SumProducts(const Quads<kType>& quads, const int32_t* x) {
  const IntTag di;
  IntVec sum = hn::Zero(di);
  for (int i = kFirst; i < kFirst + kWords; ++i) {
    for (int byte = 0; byte < 4; ++byte) {
      const Words shifted = ShiftDown(quads.q[i], 8 * byte);
      IntVec number = hn::BitCast(di, hn::And(shifted, hn::Set(WordTag(), 0xFFu)));
      if (Blocks<kType>::kSigned) number = hn::ShiftRight<24>(hn::ShiftLeft<24>(number));
      const auto factor = static_cast<int8_t>(static_cast<uint32_t>(x[i]) >> (8 * byte));
      sum = hn::Add(sum, hn::Mul(number, hn::Set(di, factor)));
    }
  }
  return sum;
}
#endif

// Columns that share a row's scale, and its integers' sums, from column k.
struct ScaledColumns {
  const int32_t* words;
  const int32_t* sums;
  float scale;

  HWY_INLINE ScaledColumns(const QuantizedRows& rows, int64_t row, int64_t k)
      : words(reinterpret_cast<const int32_t*>(rows.integers(row) + k)),
        sums(rows.sums(row) + k / kSummedCols),
        scale(rows.scales(row)[k / kScaledCols]) {}
};

// What is added to q where they are stored, by the type and by AddedToSigned.
template <DType kType>
constexpr int kAdded = static_cast<int>(Blocks<kType>::kOffset) + AddedToSigned<kType>();

// total += the products with kWords words of x from kFirst, which share a scale of the weight's.
// `added` is kAdded times the sum of their integers, `scaled_sum` this sum times `scale`, x's.
template <DType kType, int kFirst, int kWords>
HWY_INLINE Vec AddProducts(const Quads<kType>& quads, const ScaleOf& of, const int32_t* x,
                           float scale, int32_t added, float scaled_sum, Vec total) {
  const FloatTag d;
  IntVec products = SumProducts<kType, kFirst, kWords>(quads, x);
  if constexpr (kAdded<kType> != 0) products = hn::Sub(products, hn::Set(IntTag(), added));
  total = hn::MulAdd(hn::Mul(of.scale, hn::Set(d, scale)), hn::ConvertTo(d, products), total);
  if constexpr (Blocks<kType>::kHasMin) {
    total = hn::NegMulAdd(of.min, hn::Set(d, scaled_sum), total);
  }
  return total;
}

// The same of a row that others follow.
template <DType kType, int kFirst, int kWords>
HWY_INLINE Vec AddProducts(const Quads<kType>& quads, const ScaleOf& of, const ScaledColumns& x,
                           int32_t sum, Vec total) {
  return AddProducts<kType, kFirst, kWords>(quads, of, x.words, x.scale, kAdded<kType> * sum,
                                            x.scale * static_cast<float>(sum), total);
}

// Adds to acc [rows, kTileRows] the products with a unit's columns, which begin at `k`, for a
// vector of the tile's rows from `tile_row`. Fetches kStep bytes from `soon` for each 32 columns.
template <DType kType, int64_t kStep>
HWY_INLINE void MultiplyUnit(const TileProduct& p, int64_t k, int64_t tile_row, int64_t first_row,
                             int64_t rows, const std::byte* soon, Fetcher& fetcher, float* acc) {
  using B = Blocks<kType>;
  const FloatTag d;
  constexpr int kSubs = static_cast<int>(BlockElements(kType) / 32);
  constexpr int kScaleParts = 32 / B::kScaleCols;
  const UnitRows<kType> unit(p.tile + k / BlockElements(kType) * UnitBytes(kType), tile_row);
  ScaleOf scales[kSubs * kScaleParts];
#pragma GCC unroll 16
  for (int i = 0; i < kSubs * kScaleParts; ++i) scales[i] = B::ScaleAt(unit, i);
#pragma GCC unroll 8
  for (int sub = 0; sub < kSubs; ++sub) {
    for (int64_t line = 0; line < kStep; line += 64) __builtin_prefetch(soon + line);
    soon += kStep;
    const Quads<kType> quads(unit, sub);
    const ScaleOf* const of = scales + sub * kScaleParts;
    for (int64_t r = 0; r < rows; ++r) {
      const ScaledColumns x(p.integers, first_row + r, k + 32 * sub);
      float* const at = acc + r * kTileRows + tile_row;
      Vec total = hn::LoadU(d, at);
      if constexpr (kScaleParts == 1) {
        total = AddProducts<kType, 0, 8>(quads, of[0], x, x.sums[0] + x.sums[1], total);
      } else {
        total = AddProducts<kType, 0, 4>(quads, of[0], x, x.sums[0], total);
        total = AddProducts<kType, 4, 4>(quads, of[1], x, x.sums[1], total);
      }
      hn::StoreU(total, d, at);
    }
    fetcher.Step();
  }
}

inline constexpr int kVectors = static_cast<int>(kTileRows / kWidth);  // of a tile's rows

// What a lone row brings to the products with a unit, taken once for all of the tile's rows.
template <DType kType>
struct RowOfUnit {
  static constexpr int kSubs = static_cast<int>(BlockElements(kType) / 32);
  static constexpr int kParts = kSubs * 32 / Blocks<kType>::kScaleCols;  // with a scale each
  static constexpr int kPartsOfSub = kParts / kSubs;

  const int32_t* words;
  const float* scales;  // [kSubs]
  float scaled_sums[kParts];
  int32_t added[kParts];  // kAdded times the sum

  HWY_INLINE RowOfUnit(const QuantizedRows& rows, int64_t row, int64_t k)
      : words(reinterpret_cast<const int32_t*>(rows.integers(row) + k)),
        scales(rows.scales(row) + k / kScaledCols) {
    const int32_t* const sums = rows.sums(row) + k / kSummedCols;
    for (int part = 0; part < kParts; ++part) {
      const int32_t sum = kPartsOfSub == 2 ? sums[part] : sums[2 * part] + sums[2 * part + 1];
      scaled_sums[part] = scales[part / kPartsOfSub] * static_cast<float>(sum);
      added[part] = kAdded<kType> * sum;
    }
  }
};

// The same of part `part` of a lone row.
template <DType kType, int kFirst, int kWords>
HWY_INLINE Vec AddProducts(const Quads<kType>& quads, const ScaleOf& of, const RowOfUnit<kType>& x,
                           int part, Vec total) {
  const int sub = part / RowOfUnit<kType>::kPartsOfSub;
  return AddProducts<kType, kFirst, kWords>(quads, of, x.words + 8 * sub, x.scales[sub],
                                            x.added[part], x.scaled_sums[part], total);
}

// Adds a lone row's products with a unit's columns, which begin at `k`, to totals of all of the
// tile's rows. The unit is read once from its begin to its end. Fetches what lies as far ahead as
// `soon`.
template <DType kType>
HWY_INLINE void MultiplyUnitByRow(const TileProduct& p, int64_t k, int64_t row,
                                  const std::byte* soon, Vec (&totals)[kVectors]) {
  using B = Blocks<kType>;
  using Row = RowOfUnit<kType>;
  const Row x(p.integers, row, k);
  const std::byte* const tile = p.tile + k / BlockElements(kType) * UnitBytes(kType);
  // Pairs share words. More at once would not fit in registers: unrolled as a whole this was slower
  // by a tenth, though no shift depended on `sub` then.
  constexpr int kPair = std::min(2, Row::kSubs);
  constexpr int64_t kStep = UnitBytes(kType) / (Row::kSubs / kPair);
#pragma GCC unroll 1
  for (int first = 0; first < Row::kSubs; first += kPair) {
    for (int64_t line = 0; line < kStep; line += 64) __builtin_prefetch(soon + line);
    soon += kStep;
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      const UnitRows<kType> unit(tile, v * kWidth);
#pragma GCC unroll 2
      for (int sub = first; sub < first + kPair; ++sub) {
        const Quads<kType> quads(unit, sub);
        if constexpr (Row::kPartsOfSub == 1) {
          totals[v] = AddProducts<kType, 0, 8>(quads, B::ScaleAt(unit, sub), x, sub, totals[v]);
        } else {
          const int part = 2 * sub;
          totals[v] = AddProducts<kType, 0, 4>(quads, B::ScaleAt(unit, part), x, part, totals[v]);
          totals[v] =
              AddProducts<kType, 4, 4>(quads, B::ScaleAt(unit, part + 1), x, part + 1, totals[v]);
        }
      }
    }
  }
}

// Sums of inner blocks join as MultiplyPairs' do, [levels][rows, kTileRows].
template <DType kType>
void MultiplyIntegers(const TileProduct& p) {
  alignas(64) float sums[kMaxLevels * kLevel];
  const FloatTag d;
  const int64_t begin = p.part * p.rows / p.parts;
  const int64_t end = (p.part + 1) * p.rows / p.parts;
  constexpr int64_t kElements = BlockElements(kType);
  // While a unit is multiplied what is a unit, or kPrefetchBytes, further is fetched, evenly.
  constexpr int64_t kStep = UnitBytes(kType) / (kElements / 32) / (kTileRows / kWidth);
  constexpr int64_t kAhead = std::max(kPrefetchBytes, UnitBytes(kType));
  const int64_t groups = (end - begin + kGroupRows - 1) / kGroupRows;
  Fetcher fetcher(p.fetch, groups * (p.cols / 32) * (kTileRows / kWidth));
  for (int64_t first = begin; first < end; first += kGroupRows) {
    const int64_t rows = std::min(kGroupRows, end - first);
    for (int32_t block = 0; block < p.inner_blocks; ++block) {
      const int level = std::popcount(static_cast<uint32_t>(block));
      float* const acc = sums + level * kLevel;
      const int64_t block_begin = BlockBegin(p, block);
      const int64_t block_end = BlockBegin(p, block + 1);
      const auto soon_of = [&](int64_t k) {
        return p.tile + k / kElements * UnitBytes(kType) + kAhead;
      };
      if (rows == 1) {
        Vec totals[kVectors];
        for (Vec& total : totals) total = hn::Zero(d);
        for (int64_t k = block_begin; k < block_end; k += kElements) {
          MultiplyUnitByRow<kType>(p, k, first, soon_of(k), totals);
        }
        for (int v = 0; v < kVectors; ++v) hn::StoreU(totals[v], d, acc + v * kWidth);
      } else {
        std::fill_n(acc, rows * kTileRows, 0.0f);
        for (int64_t k = block_begin; k < block_end; k += kElements) {
          const std::byte* soon = soon_of(k);
          for (int64_t row = 0; row < kTileRows; row += kWidth) {
            MultiplyUnit<kType, kStep>(p, k, row, first, rows, soon, fetcher, acc);
            soon += kElements / 32 * kStep;
          }
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

// Multiplies and adds bytes in registers, as MultiplyIntegers does at best; returns the number of
// multiply-adds, and in *sink something that depends on all.
int64_t MultiplyBytes(int64_t rounds, float* sink) {
  const IntTag di;
  constexpr int kChains = 12;  // as MultiplyAdd's
  const IntVec bytes = hn::Set(di, 0x01020301);
  IntVec sums[kChains];
  for (int j = 0; j < kChains; ++j) sums[j] = hn::Set(di, j);
  for (int64_t i = 0; i < rounds; ++i) {
#pragma GCC unroll 12
    for (int j = 0; j < kChains; ++j) {
#if HWY_TARGET == HWY_AVX3_DL
      sums[j].raw = _mm512_dpbusd_epi32(sums[j].raw, bytes.raw, bytes.raw);
#elif HWY_TARGET == HWY_AVX3
      sums[j] = AddPairs(sums[j], IntVec{_mm512_maddubs_epi16(sums[j].raw, bytes.raw)});
#elif HWY_TARGET == HWY_AVX2
      sums[j] = AddPairs(sums[j], IntVec{_mm256_maddubs_epi16(sums[j].raw, bytes.raw)});
#else
      sums[j] = hn::Add(hn::Mul(sums[j], bytes), bytes);
#endif
    }
  }
  for (int j = 1; j < kChains; ++j) sums[0] = hn::Add(sums[0], sums[j]);
  *sink = static_cast<float>(hn::GetLane(sums[0]));
  constexpr int kBytes =
      HWY_TARGET == HWY_AVX3_DL || HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX2 ? 4 : 1;
  return rounds * kChains * kWidth * kBytes;
}

}  // namespace skein::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // SKEIN_KERNELS_CPU_INTEGER_INL_H_
