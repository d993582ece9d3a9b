// Turns quantised blocks of a tile into columns of floats. Included once per instruction set.
//
// A unit is a block of each of the tile's 64 rows, its 32-bit words transposed (see
// kernels/packing/layout.h), so that lanes are rows, whatever the type: all of a block's fields are
// found by shifts and masks, and four elements that follow each other share a word.
#if defined(SKEIN_KERNELS_CPU_UNPACK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SKEIN_KERNELS_CPU_UNPACK_INL_H_
#undef SKEIN_KERNELS_CPU_UNPACK_INL_H_
#else
#define SKEIN_KERNELS_CPU_UNPACK_INL_H_
#endif

#include <cstddef>
#include <cstdint>

#include "base/dtype.h"
#include "base/quantized_blocks.h"
#include "hwy/highway.h"
#include "kernels/cpu/math-inl.h"
#include "kernels/packing/layout.h"

HWY_BEFORE_NAMESPACE();
namespace skein::kernels::HWY_NAMESPACE {

using WordTag = hn::RebindToUnsigned<FloatTag>;
using Words = hn::Vec<WordTag>;

// The blocks of kWidth rows of a unit from `row`.
template <DType kType>
class UnitRows {
 public:
  HWY_INLINE UnitRows(const std::byte* unit, int64_t row)
      : half_(reinterpret_cast<const hwy::float16_t*>(unit) + row),
        words_(reinterpret_cast<const uint32_t*>(unit + UnitHalfBytes(kType)) + row) {}

  HWY_INLINE Words Word(int64_t i) const { return hn::LoadU(WordTag(), words_ + i * kTileRows); }
  // The number in F16 that does not fill a word.
  HWY_INLINE Vec Half() const {
    return hn::PromoteTo(FloatTag(), hn::LoadU(hn::Rebind<hwy::float16_t, FloatTag>(), half_));
  }

 private:
  const hwy::float16_t* half_;
  const uint32_t* words_;
};

// The number in F16 in the lower half of each word.
HWY_INLINE Vec LowHalf(Words words) {
  const IntTag di;
  const hn::Rebind<uint16_t, FloatTag> du16;
  const auto bits = hn::DemoteTo(du16, hn::BitCast(di, hn::And(words, hn::Set(WordTag(), 0xFFFF))));
  return hn::PromoteTo(FloatTag(), hn::BitCast(hn::Rebind<hwy::float16_t, FloatTag>(), bits));
}
HWY_INLINE Vec HighHalf(Words words) { return LowHalf(hn::ShiftRight<16>(words)); }

// Shifts are known where loops are unrolled: none is made for 0.
HWY_INLINE Words ShiftDown(Words words, int64_t shift) {
  if (shift == 0) return words;
  return hn::Shr(words, hn::Set(WordTag(), static_cast<uint32_t>(shift)));
}
// Bits [shift, shift + count) of each word, as an integer.
HWY_INLINE Words Bits(Words words, int64_t shift, int count) {
  return hn::And(ShiftDown(words, shift), hn::Set(WordTag(), (1u << count) - 1));
}
// The same bits of each of a word's four bytes; `shift + count` is at most 8.
HWY_INLINE Words BitsOfBytes(Words words, int64_t shift, int count) {
  return hn::And(ShiftDown(words, shift), hn::Set(WordTag(), 0x01010101u * ((1u << count) - 1)));
}
// Bits [shift, shift + 4) of each word, as bit 4 of its four bytes.
HWY_INLINE Words FifthBits(Words words, int64_t shift) {
  const WordTag du;
  // Copies of the four bits, 7 apart, have bit i at bit 8 i.
  const Words spread = hn::Mul(Bits(words, shift, 4), hn::Set(du, 0x00204081u));
  return hn::ShiftLeft<4>(hn::And(spread, hn::Set(du, 0x01010101u)));
}

HWY_INLINE Vec ToFloat(Words small) {
  return hn::ConvertTo(FloatTag(), hn::BitCast(IntTag(), small));
}
HWY_INLINE Vec Minus(Vec a, float b) { return hn::Sub(a, hn::Set(FloatTag(), b)); }

// What each of a word's four-bit bytes stands for in IQ4_NL and IQ4_XS.
HWY_INLINE Words Iq4Values(Words indices) {
  const hn::Repartition<uint8_t, WordTag> d8;
  const auto table = hn::LoadDup128(d8, reinterpret_cast<const uint8_t*>(kIq4Values.data()));
  return hn::BitCast(WordTag(), hn::TableLookupBytes(table, hn::BitCast(d8, indices)));
}

// Word i of 8 of 32 elements of four bits, of which element e + 16 shares element e's byte, in 4
// words from `first`.
template <DType kType>
HWY_INLINE Words Nibbles(const UnitRows<kType>& rows, int64_t first, int64_t i) {
  return BitsOfBytes(rows.Word(first + i % 4), i / 4 * 4, 4);
}

// How values follow from numbers q: scale (q - kOffset), or scale q - min.
struct ScaleOf {
  Vec scale;
  Vec min;
};
HWY_INLINE ScaleOf WithoutMin(Vec scale) { return {scale, hn::Zero(FloatTag())}; }

// For each type: ScaleAt gives what kScaleCols elements share; Quad gives four numbers, word i of
// the 8 of 32 elements `sub`, in bytes, signed or not.
template <DType kType>
struct Blocks;

struct BlocksOf32 {
  static constexpr int kScaleCols = 32;
  static constexpr bool kSigned = false;
  static constexpr bool kHasMin = false;
  static constexpr float kOffset = 0;
};

template <>
struct Blocks<DType::kQ4_0> : BlocksOf32 {
  using Rows = UnitRows<DType::kQ4_0>;
  static constexpr float kOffset = 8;
  static HWY_INLINE ScaleOf ScaleAt(const Rows& rows, int64_t) { return WithoutMin(rows.Half()); }
  static HWY_INLINE Words Quad(const Rows& rows, int64_t, int64_t i) { return Nibbles(rows, 0, i); }
};

template <>
struct Blocks<DType::kQ4_1> : BlocksOf32 {
  using Rows = UnitRows<DType::kQ4_1>;
  static constexpr bool kHasMin = true;
  static HWY_INLINE ScaleOf ScaleAt(const Rows& rows, int64_t) {
    return {LowHalf(rows.Word(0)), hn::Neg(HighHalf(rows.Word(0)))};
  }
  static HWY_INLINE Words Quad(const Rows& rows, int64_t, int64_t i) { return Nibbles(rows, 1, i); }
};

template <>
struct Blocks<DType::kQ5_0> : BlocksOf32 {
  using Rows = UnitRows<DType::kQ5_0>;
  static constexpr float kOffset = 16;
  static HWY_INLINE ScaleOf ScaleAt(const Rows& rows, int64_t) { return WithoutMin(rows.Half()); }
  static HWY_INLINE Words Quad(const Rows& rows, int64_t, int64_t i) {
    return hn::Or(Nibbles(rows, 1, i), FifthBits(rows.Word(0), 4 * i));
  }
};

template <>
struct Blocks<DType::kQ5_1> : BlocksOf32 {
  using Rows = UnitRows<DType::kQ5_1>;
  static constexpr bool kHasMin = true;
  static HWY_INLINE ScaleOf ScaleAt(const Rows& rows, int64_t) {
    return {LowHalf(rows.Word(0)), hn::Neg(HighHalf(rows.Word(0)))};
  }
  static HWY_INLINE Words Quad(const Rows& rows, int64_t, int64_t i) {
    return hn::Or(Nibbles(rows, 2, i), FifthBits(rows.Word(1), 4 * i));
  }
};

template <>
struct Blocks<DType::kQ8_0> : BlocksOf32 {
  using Rows = UnitRows<DType::kQ8_0>;
  static constexpr bool kSigned = true;
  static HWY_INLINE ScaleOf ScaleAt(const Rows& rows, int64_t) { return WithoutMin(rows.Half()); }
  static HWY_INLINE Words Quad(const Rows& rows, int64_t, int64_t i) { return rows.Word(i); }
};

template <>
struct Blocks<DType::kIQ4_NL> : BlocksOf32 {
  using Rows = UnitRows<DType::kIQ4_NL>;
  static constexpr bool kSigned = true;
  static HWY_INLINE ScaleOf ScaleAt(const Rows& rows, int64_t) { return WithoutMin(rows.Half()); }
  static HWY_INLINE Words Quad(const Rows& rows, int64_t, int64_t i) {
    return Iq4Values(Nibbles(rows, 0, i));
  }
};

// Words of superblocks lie by halves of 128 elements, whose 32-element quarters share bytes: where
// word i of `sub` begins, 8 words to a half.
constexpr int64_t WordOfHalf(int64_t sub, int64_t i) { return sub / 4 * 8 + i; }

template <>
struct Blocks<DType::kQ2_K> {
  using Rows = UnitRows<DType::kQ2_K>;
  static constexpr int kScaleCols = 16;
  static constexpr bool kSigned = false;
  static constexpr bool kHasMin = true;
  static constexpr float kOffset = 0;
  static HWY_INLINE ScaleOf ScaleAt(const Rows& rows, int64_t scale) {
    const Words both = rows.Word(scale / 4);
    const int64_t byte = scale % 4 * 8;
    return {hn::Mul(LowHalf(rows.Word(20)), ToFloat(Bits(both, byte, 4))),
            hn::Mul(HighHalf(rows.Word(20)), ToFloat(Bits(both, byte + 4, 4)))};
  }
  static HWY_INLINE Words Quad(const Rows& rows, int64_t sub, int64_t i) {
    return BitsOfBytes(rows.Word(4 + WordOfHalf(sub, i)), sub % 4 * 2, 2);
  }
};

template <>
struct Blocks<DType::kQ3_K> {
  using Rows = UnitRows<DType::kQ3_K>;
  static constexpr int kScaleCols = 16;
  static constexpr bool kSigned = false;
  static constexpr bool kHasMin = false;
  static constexpr float kOffset = 4;
  static HWY_INLINE ScaleOf ScaleAt(const Rows& rows, int64_t scale) {
    const int64_t byte = scale % 4 * 8;
    const Words low = Bits(rows.Word(24 + scale % 8 / 4), byte + scale / 8 * 4, 4);
    const Words high = Bits(rows.Word(26), byte + scale / 4 * 2, 2);
    const Vec six = ToFloat(hn::Or(low, hn::ShiftLeft<4>(high)));
    return WithoutMin(hn::Mul(rows.Half(), Minus(six, 32)));
  }
  static HWY_INLINE Words Quad(const Rows& rows, int64_t sub, int64_t i) {
    const Words third = BitsOfBytes(rows.Word(i), sub, 1);
    return hn::Or(BitsOfBytes(rows.Word(8 + WordOfHalf(sub, i)), sub % 4 * 2, 2),
                  hn::ShiftLeft<2>(third));
  }
};

// The scale and the minimum of six bits of Q4_K and Q5_K, words 1 to 3.
template <DType kType>
HWY_INLINE ScaleOf ScaleOfQuarters(const UnitRows<kType>& rows, int64_t sub) {
  const int64_t byte = sub % 4 * 8;
  Words scale = Bits(rows.Word(1), byte, 6);
  Words min = Bits(rows.Word(2), byte, 6);
  if (sub >= 4) {
    scale = hn::Or(Bits(rows.Word(3), byte, 4), hn::ShiftLeft<4>(Bits(rows.Word(1), byte + 6, 2)));
    min =
        hn::Or(Bits(rows.Word(3), byte + 4, 4), hn::ShiftLeft<4>(Bits(rows.Word(2), byte + 6, 2)));
  }
  return {hn::Mul(LowHalf(rows.Word(0)), ToFloat(scale)),
          hn::Mul(HighHalf(rows.Word(0)), ToFloat(min))};
}

template <>
struct Blocks<DType::kQ4_K> : BlocksOf32 {
  using Rows = UnitRows<DType::kQ4_K>;
  static constexpr bool kHasMin = true;
  static HWY_INLINE ScaleOf ScaleAt(const Rows& rows, int64_t sub) {
    return ScaleOfQuarters(rows, sub);
  }
  static HWY_INLINE Words Quad(const Rows& rows, int64_t sub, int64_t i) {
    return BitsOfBytes(rows.Word(4 + sub / 2 * 8 + i), sub % 2 * 4, 4);
  }
};

template <>
struct Blocks<DType::kQ5_K> : BlocksOf32 {
  using Rows = UnitRows<DType::kQ5_K>;
  static constexpr bool kHasMin = true;
  static HWY_INLINE ScaleOf ScaleAt(const Rows& rows, int64_t sub) {
    return ScaleOfQuarters(rows, sub);
  }
  static HWY_INLINE Words Quad(const Rows& rows, int64_t sub, int64_t i) {
    const Words fifth = BitsOfBytes(rows.Word(4 + i), sub, 1);
    return hn::Or(BitsOfBytes(rows.Word(12 + sub / 2 * 8 + i), sub % 2 * 4, 4),
                  hn::ShiftLeft<4>(fifth));
  }
};

template <>
struct Blocks<DType::kQ6_K> {
  using Rows = UnitRows<DType::kQ6_K>;
  static constexpr int kScaleCols = 16;
  static constexpr bool kSigned = false;
  static constexpr bool kHasMin = false;
  static constexpr float kOffset = 32;
  static HWY_INLINE ScaleOf ScaleAt(const Rows& rows, int64_t scale) {
    const IntTag di;
    // A signed byte.
    const auto top = hn::ShiftLeftSame(hn::BitCast(di, rows.Word(48 + scale / 4)),
                                       static_cast<int>(24 - scale % 4 * 8));
    return WithoutMin(hn::Mul(rows.Half(), hn::ConvertTo(FloatTag(), hn::ShiftRight<24>(top))));
  }
  static HWY_INLINE Words Quad(const Rows& rows, int64_t sub, int64_t i) {
    const int64_t quarter = sub % 4;
    const Words low = rows.Word(sub / 4 * 16 + quarter % 2 * 8 + i);
    const Words high = rows.Word(32 + WordOfHalf(sub, i));
    return hn::Or(BitsOfBytes(low, quarter / 2 * 4, 4),
                  hn::ShiftLeft<4>(BitsOfBytes(high, quarter * 2, 2)));
  }
};

template <>
struct Blocks<DType::kIQ4_XS> : BlocksOf32 {
  using Rows = UnitRows<DType::kIQ4_XS>;
  static constexpr bool kSigned = true;
  static HWY_INLINE ScaleOf ScaleAt(const Rows& rows, int64_t sub) {
    const Words low = Bits(rows.Word(1), sub * 4, 4);
    const Words high = Bits(rows.Word(0), 16 + sub * 2, 2);
    const Vec six = ToFloat(hn::Or(low, hn::ShiftLeft<4>(high)));
    return WithoutMin(hn::Mul(LowHalf(rows.Word(0)), Minus(six, 32)));
  }
  static HWY_INLINE Words Quad(const Rows& rows, int64_t sub, int64_t i) {
    return Iq4Values(Nibbles(rows, 2 + sub * 4, i));
  }
};

template <>
struct Blocks<DType::kInt8> : BlocksOf32 {
  using Rows = UnitRows<DType::kInt8>;
  static constexpr bool kSigned = true;
  static HWY_INLINE ScaleOf ScaleAt(const Rows& rows, int64_t) {
    return WithoutMin(hn::BitCast(FloatTag(), rows.Word(0)));
  }
  static HWY_INLINE Words Quad(const Rows& rows, int64_t, int64_t i) { return rows.Word(1 + i); }
};

template <>
struct Blocks<DType::kInt4> : BlocksOf32 {
  using Rows = UnitRows<DType::kInt4>;
  static constexpr bool kHasMin = true;
  // Both products of such a scale are exact, and so is their difference; of zeros it has another
  // sign than DequantizeBlocks gives where the scale is negative.
  static HWY_INLINE ScaleOf ScaleAt(const Rows& rows, int64_t) {
    const Words word = rows.Word(0);
    const Vec scale = hn::BitCast(FloatTag(), hn::And(word, hn::Set(WordTag(), ~0xFFu)));
    return {scale, hn::Mul(scale, ToFloat(hn::And(word, hn::Set(WordTag(), 0xFFu))))};
  }
  static HWY_INLINE Words Quad(const Rows& rows, int64_t, int64_t i) { return Nibbles(rows, 1, i); }
};

// Quads are floats of 8 bits: see UnpackByte.
template <>
struct Blocks<DType::kFp8> : Blocks<DType::kInt8> {
  using Rows = UnitRows<DType::kFp8>;
  static HWY_INLINE ScaleOf ScaleAt(const Rows& rows, int64_t) {
    return WithoutMin(hn::BitCast(FloatTag(), rows.Word(0)));
  }
  static HWY_INLINE Words Quad(const Rows& rows, int64_t, int64_t i) { return rows.Word(1 + i); }
};

// Byte j of each word, a float of 8 bits that is no NaN, as E4M3ToFloat has it.
template <int j>
HWY_INLINE Vec FloatOfE4M3(Words words) {
  const FloatTag d;
  const WordTag du;
  const Words byte = j == 0 ? words : hn::ShiftRight<8 * j>(words);
  const Words magnitude = hn::And(byte, hn::Set(du, 0x7Fu));
  // As if all had a leading 1; without an exponent that is 2^-7 + m / 2^10 for m / 2^9.
  const Vec normal =
      hn::BitCast(d, hn::Add(hn::ShiftLeft<20>(magnitude), hn::Set(du, 0x3C000000u)));
  const Vec small = hn::MulSub(normal, hn::Set(d, 2.0f), hn::Set(d, 0x1p-6f));
  const auto has_exponent = hn::Ge(normal, hn::Set(d, 0x1p-6f));
  const Words sign = hn::ShiftLeft<24>(hn::And(byte, hn::Set(du, 0x80u)));
  return hn::BitCast(d, hn::Or(hn::BitCast(du, hn::IfThenElse(has_exponent, normal, small)), sign));
}

// Byte j of each word, as a float.
template <bool kSigned, int j>
HWY_INLINE Vec FloatOfByte(Words words) {
  if constexpr (kSigned) {
    const auto top = hn::ShiftLeft<24 - 8 * j>(hn::BitCast(IntTag(), words));
    return hn::ConvertTo(FloatTag(), hn::ShiftRight<24>(top));
  } else {
    return ToFloat(hn::And(hn::ShiftRight<8 * j>(words), hn::Set(WordTag(), 0xFFu)));
  }
}

template <DType kType, int j>
HWY_INLINE void UnpackByte(Words quad, const ScaleOf& of, float* out) {
  using B = Blocks<kType>;
  Vec value;
  if constexpr (kType == DType::kFp8) {
    value = FloatOfE4M3<j>(quad);
  } else {
    value = FloatOfByte<B::kSigned, j>(quad);
  }
  if constexpr (B::kHasMin) {
    value = hn::Sub(hn::Mul(of.scale, value), of.min);
  } else {
    value = hn::Mul(of.scale, Minus(value, B::kOffset));
  }
  hn::StoreU(value, FloatTag(), out + j * kTileRows);
}

// Writes columns [begin, end) of a tile, multiples of 32, to out [end - begin, kTileRows], with
// DequantizeBlocks' bits.
template <DType kType>
HWY_NOINLINE void Unpack(const std::byte* tile, int64_t begin, int64_t end, float* out) {
  using B = Blocks<kType>;
  constexpr int64_t kElements = BlockElements(kType);
  for (int64_t k = begin; k < end; k += 32, out += 32 * kTileRows) {
    const std::byte* unit = tile + k / kElements * UnitBytes(kType);
    const int64_t sub = k % kElements / 32;
    for (int64_t row = 0; row < kTileRows; row += kWidth) {
      const UnitRows<kType> rows(unit, row);
      for (int64_t part = 0; part < 32 / B::kScaleCols; ++part) {
        const ScaleOf of = B::ScaleAt(rows, sub * (32 / B::kScaleCols) + part);
        for (int64_t i = part * B::kScaleCols / 4; i < (part + 1) * B::kScaleCols / 4; ++i) {
          const Words quad = B::Quad(rows, sub, i);
          float* const at = out + 4 * i * kTileRows + row;
          UnpackByte<kType, 0>(quad, of, at);
          UnpackByte<kType, 1>(quad, of, at);
          UnpackByte<kType, 2>(quad, of, at);
          UnpackByte<kType, 3>(quad, of, at);
        }
      }
    }
  }
}

}  // namespace skein::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // SKEIN_KERNELS_CPU_UNPACK_INL_H_
