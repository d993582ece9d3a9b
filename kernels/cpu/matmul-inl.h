// The product of one tile of a matrix with rows of input. Included once per instruction set.
//
// A tile's column (one k of its 64 rows) is loaded as pairs of vectors, widened to float, and
// multiplied with in[r, k], broadcast, for a block of input rows; the accumulators of the block
// stay in registers for all of an inner block's columns. Decode (one row) and prefill (blocks of 6)
// read the same tile in the same order: weights stream from memory once a tile, the tile then comes
// from the L2 cache for the following blocks of rows.
#if defined(SKEIN_KERNELS_CPU_MATMUL_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SKEIN_KERNELS_CPU_MATMUL_INL_H_
#undef SKEIN_KERNELS_CPU_MATMUL_INL_H_
#else
#define SKEIN_KERNELS_CPU_MATMUL_INL_H_
#endif

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>

#include "hwy/highway.h"
#include "kernels/cpu/math-inl.h"
#include "kernels/cpu/simd_ops.h"

HWY_BEFORE_NAMESPACE();
namespace skein::kernels::HWY_NAMESPACE {

// A pair of vectors holds rows FirstRow(pair) ... and those 16 further, as BF16 packs them.
inline constexpr int kPairs = static_cast<int>(kTileRows / (2 * kWidth));
constexpr int64_t FirstRow(int pair) { return pair / kParts * 32 + pair % kParts * kWidth; }

// Input rows at a time. Their accumulators stay in registers beside the weights and an input, with
// all pairs of a tile at once on AVX-512 (6 rows: 24 of 32 registers), with fewer the more rows
// there are on AVX2 (6 rows and one pair: 12 of 16).
inline constexpr int kBlockRows = 6;
constexpr int PairsAtOnce(int rows) {
  return kPairs <= 2 ? kPairs : rows == 1 ? 4 : rows == 2 ? 2 : 1;
}

// What memory delivers to a core within some of its latencies.
inline constexpr int64_t kPrefetchBytes = 4096;

template <DType kType>
struct Column;

template <>
struct Column<DType::kBF16> {
  using Element = uint16_t;
  static HWY_INLINE void Load(const uint16_t* column, int pair, Vec& low, Vec& high) {
    const FloatTag d;
    const hn::RebindToUnsigned<FloatTag> du;
    const auto* words = reinterpret_cast<const uint32_t*>(column);
    const auto bits = hn::LoadU(du, words + pair * kWidth);
    low = hn::BitCast(d, hn::ShiftLeft<16>(bits));
    high = hn::BitCast(d, hn::And(bits, hn::Set(du, 0xFFFF0000u)));
  }
};

template <>
struct Column<DType::kF16> {
  using Element = uint16_t;
  static HWY_INLINE void Load(const uint16_t* column, int pair, Vec& low, Vec& high) {
    const FloatTag d;
    const hn::Rebind<hwy::float16_t, FloatTag> dh;
    const auto* rows = reinterpret_cast<const hwy::float16_t*>(column) + FirstRow(pair);
    low = hn::PromoteTo(d, hn::LoadU(dh, rows));
    high = hn::PromoteTo(d, hn::LoadU(dh, rows + 16));
  }
};

template <>
struct Column<DType::kF32> {
  using Element = float;
  static HWY_INLINE void Load(const float* column, int pair, Vec& low, Vec& high) {
    low = hn::LoadU(FloatTag(), column + FirstRow(pair));
    high = hn::LoadU(FloatTag(), column + FirstRow(pair) + 16);
  }
};

// out[r, n] = sum over k in [begin, end) of in[r, k] * tile[k, n], for kRows rows and the tile's
// rows of kCount pairs from `pair`.
template <DType kType, int kRows, int kCount>
HWY_INLINE void MultiplyPairs(const TileProduct& p, int64_t first_row, int64_t begin, int64_t end,
                              int pair, float* out) {
  const FloatTag d;
  using Element = typename Column<kType>::Element;
  const auto* column = reinterpret_cast<const Element*>(p.tile) + begin * kTileRows;
  const float* in = p.in + first_row * p.cols;
  Vec low[kRows][kCount];
  Vec high[kRows][kCount];
  for (int r = 0; r < kRows; ++r) {
    for (int c = 0; c < kCount; ++c) low[r][c] = high[r][c] = hn::Zero(d);
  }
  for (int64_t k = begin; k < end; ++k, column += kTileRows) {
    Vec w_low[kCount];
    Vec w_high[kCount];
#pragma GCC unroll 8
    for (int c = 0; c < kCount; ++c) {
      Column<kType>::Load(column, pair + c, w_low[c], w_high[c]);
    }
    if (kRows == 1) {
      const auto* ahead = reinterpret_cast<const std::byte*>(column) + kPrefetchBytes;
      __builtin_prefetch(ahead);
      __builtin_prefetch(ahead + 64);
    }
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const auto x = hn::Set(d, in[r * p.cols + k]);
#pragma GCC unroll 8
      for (int c = 0; c < kCount; ++c) {
        low[r][c] = hn::MulAdd(x, w_low[c], low[r][c]);
        high[r][c] = hn::MulAdd(x, w_high[c], high[r][c]);
      }
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int c = 0; c < kCount; ++c) {
      float* sums = out + r * kTileRows + FirstRow(pair + c);
      hn::StoreU(low[r][c], d, sums);
      hn::StoreU(high[r][c], d, sums + 16);
    }
  }
}

// out [kRows, kTileRows] = the sums of one inner block.
template <DType kType, int kRows>
HWY_NOINLINE void MultiplyBlock(const TileProduct& p, int64_t first_row, int64_t block,
                                float* out) {
  const int64_t begin = block * p.cols / p.inner_blocks;
  const int64_t end = (block + 1) * p.cols / p.inner_blocks;
  constexpr int kCount = PairsAtOnce(kRows);
  for (int pair = 0; pair < kPairs; pair += kCount) {
    MultiplyPairs<kType, kRows, kCount>(p, first_row, begin, end, pair, out);
  }
}

// Joins the sums of inner blocks [block, block + count) as a binary tree.
template <DType kType, int kRows>
void MultiplyTree(const TileProduct& p, int64_t first_row, int64_t block, int64_t count,
                  float* out) {
  if (count == 1) return MultiplyBlock<kType, kRows>(p, first_row, block, out);
  const auto left = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(count - 1)));
  alignas(64) float right[kRows * kTileRows];
  MultiplyTree<kType, kRows>(p, first_row, block, left, out);
  MultiplyTree<kType, kRows>(p, first_row, block + left, count - left, right);
  const FloatTag d;
  for (int64_t i = 0; i < kRows * kTileRows; i += kWidth) {
    hn::Store(hn::Add(hn::Load(d, out + i), hn::Load(d, right + i)), d, out + i);
  }
}

template <DType kType, int kRows>
void MultiplyRows(const TileProduct& p, int64_t first_row) {
  alignas(64) float sums[kRows * kTileRows];
  MultiplyTree<kType, kRows>(p, first_row, 0, p.inner_blocks, sums);
  for (int64_t r = 0; r < kRows; ++r) {
    std::memcpy(p.out + (first_row + r) * p.out_stride, sums + r * kTileRows,
                p.out_cols * sizeof(float));
  }
}

template <DType kType>
void MultiplyTile(const TileProduct& p) {
  using Rows = void (*)(const TileProduct&, int64_t);
  static constexpr Rows kRows[] = {MultiplyRows<kType, 1>, MultiplyRows<kType, 2>,
                                   MultiplyRows<kType, 3>, MultiplyRows<kType, 4>,
                                   MultiplyRows<kType, 5>, MultiplyRows<kType, 6>};
  static_assert(std::size(kRows) == kBlockRows);
  // Blocks as even as they can be: 8 rows are 4 + 4.
  int64_t blocks = (p.rows + kBlockRows - 1) / kBlockRows;
  for (int64_t row = 0; row < p.rows; --blocks) {
    const int64_t rows = (p.rows - row + blocks - 1) / blocks;
    kRows[rows - 1](p, row);
    row += rows;
  }
}

void Multiply(const TileProduct& p) {
  switch (p.dtype) {
    case DType::kF32:
      return MultiplyTile<DType::kF32>(p);
    case DType::kF16:
      return MultiplyTile<DType::kF16>(p);
    case DType::kBF16:
      return MultiplyTile<DType::kBF16>(p);
  }
}

}  // namespace skein::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // SKEIN_KERNELS_CPU_MATMUL_INL_H_
