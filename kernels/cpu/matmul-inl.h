// The product of one tile of a matrix with rows of input. Included once per instruction set.
//
// A tile's column (one k of its 64 rows) is loaded as pairs of vectors, widened to float, and
// multiplied with in[r, k], broadcast, for a block of up to 6 input rows, whose accumulators stay
// in registers. A run of columns serves all blocks of a group of rows before the next run: it
// streams from memory once, and comes from the L2 cache for the following blocks. Meanwhile the
// next run is fetched, evenly over the first blocks, so that memory and arithmetic both stay busy:
// 8 rows need about as long to multiply as their weights need to arrive.
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

// A run of columns: with bf16, 128 KiB. It and the next one fit in an L2 cache of 512 KiB.
inline constexpr int64_t kRunCols = 1024;

// Rows that share a run. Their sums, 256 bytes each, lie on the stack, once a level of the tree.
inline constexpr int64_t kGroupRows = 8 * kBlockRows;

// One row, which takes weights as fast as memory gives them, fetches this far ahead: what arrives
// within some of memory's latencies.
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

// What to fetch of the next run while a column is multiplied: two cache lines, and as many `step`
// bytes further for the column that follows. Nothing where step is 0.
struct Ahead {
  const std::byte* lines[2] = {};
  int64_t step = 0;
};

// Fetches a list into the L2 cache in even steps, for products that are bound by arithmetic: memory
// has time meanwhile.
class Fetcher {
 public:
  Fetcher(const FetchList& list, int64_t steps)
      : next_(list.blocks), last_(list.blocks + list.count), bytes_(list.bytes) {
    lines_ = steps == 0 ? 0 : (list.count * bytes_ / kLine + steps - 1) / steps;
  }

  HWY_INLINE void Step() {
    for (int64_t i = 0; i < lines_; ++i) {
      if (line_ == end_) {
        if (next_ == last_) return;
        line_ = *next_++;
        end_ = line_ + bytes_;
      }
      __builtin_prefetch(line_, 0, 2);
      line_ += kLine;
    }
  }

 private:
  static constexpr int64_t kLine = 64;
  const std::byte* line_ = nullptr;
  const std::byte* end_ = nullptr;
  const std::byte* const* next_;
  const std::byte* const* last_;
  int64_t bytes_;  // of a block
  int64_t lines_;  // a step
};

// Columns [begin, end) of an inner block that begins at `block_begin`.
struct Run {
  int64_t block_begin = 0;
  int64_t begin = 0;
  int64_t end = 0;
};

// out[r, n] += sum over the run's k of in[r, k] * tile[k, n], for kRows rows and the tile's rows of
// kCount pairs from `pair`. The first run of a block does not read `out`.
template <DType kType, int kRows, int kCount>
HWY_INLINE void MultiplyPairs(const TileProduct& p, int64_t first_row, const Run& run, int pair,
                              Ahead ahead, Fetcher& fetcher, float* out) {
  const FloatTag d;
  using Element = typename Column<kType>::Element;
  const auto* column = reinterpret_cast<const Element*>(p.tile) + run.begin * kTileRows;
  const float* in = p.in + first_row * p.cols;
  Vec low[kRows][kCount];
  Vec high[kRows][kCount];
  for (int r = 0; r < kRows; ++r) {
    for (int c = 0; c < kCount; ++c) {
      const float* sums = out + r * kTileRows + FirstRow(pair + c);
      const bool first = run.begin == run.block_begin;
      low[r][c] = first ? hn::Zero(d) : hn::LoadU(d, sums);
      high[r][c] = first ? hn::Zero(d) : hn::LoadU(d, sums + 16);
    }
  }
  Fetcher fetch = fetcher;  // in registers
  for (int64_t k = run.begin; k < run.end; ++k, column += kTileRows) {
    Vec w_low[kCount];
    Vec w_high[kCount];
#pragma GCC unroll 8
    for (int c = 0; c < kCount; ++c) {
      Column<kType>::Load(column, pair + c, w_low[c], w_high[c]);
    }
    if (kRows == 1) {
      const auto* soon = reinterpret_cast<const std::byte*>(column) + kPrefetchBytes;
      __builtin_prefetch(soon);
      __builtin_prefetch(soon + 64);
    } else if (ahead.step != 0) {
      for (const std::byte*& line : ahead.lines) {
        __builtin_prefetch(line, 0, 2);  // for reading, into the L2 cache
        line += ahead.step;
      }
    }
    if (kRows > 1) fetch.Step();
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
  fetcher = fetch;
  for (int r = 0; r < kRows; ++r) {
    for (int c = 0; c < kCount; ++c) {
      float* sums = out + r * kTileRows + FirstRow(pair + c);
      hn::StoreU(low[r][c], d, sums);
      hn::StoreU(high[r][c], d, sums + 16);
    }
  }
}

template <DType kType, int kRows>
HWY_NOINLINE void MultiplyRows(const TileProduct& p, int64_t first_row, const Run& run,
                               const Ahead& ahead, Fetcher& fetcher, float* out) {
  constexpr int kCount = PairsAtOnce(kRows);
  for (int pair = 0; pair < kPairs; pair += kCount) {
    MultiplyPairs<kType, kRows, kCount>(p, first_row, run, pair, ahead, fetcher, out);
  }
}

// For block `block` of `blocks`, together of `rows` rows, that share a run.
template <DType kType>
Ahead NextRun(const TileProduct& p, const Run& run, int64_t rows, int64_t block, int64_t blocks) {
  constexpr int64_t kColumnBytes = kTileRows * sizeof(typename Column<kType>::Element);
  const std::byte* next = p.tile + run.end * kColumnBytes;
  // Up to 4 rows wait for memory whatever is fetched, and the CPU sees by itself what comes next.
  if (rows <= 4) return {};
  if (blocks == 1) return {{next, next + kColumnBytes / 2}, kColumnBytes};
  if (block > 1) return {};  // the first two fetched half each
  next += block * (run.end - run.begin) * kColumnBytes / 2;
  return {{next, next + kColumnBytes / 4}, kColumnBytes / 2};
}

// out [rows, kTileRows] = the sums of one inner block.
template <DType kType>
void MultiplyBlock(const TileProduct& p, int64_t first_row, int64_t rows, int64_t block,
                   Fetcher& fetcher, float* out) {
  using Rows = void (*)(const TileProduct&, int64_t, const Run&, const Ahead&, Fetcher&, float*);
  static constexpr Rows kRows[] = {MultiplyRows<kType, 1>, MultiplyRows<kType, 2>,
                                   MultiplyRows<kType, 3>, MultiplyRows<kType, 4>,
                                   MultiplyRows<kType, 5>, MultiplyRows<kType, 6>};
  static_assert(std::size(kRows) == kBlockRows);
  const int64_t begin = block * p.cols / p.inner_blocks;
  const int64_t end = (block + 1) * p.cols / p.inner_blocks;
  const int64_t blocks = (rows + kBlockRows - 1) / kBlockRows;
  int64_t k = begin;
  do {  // also where the block is empty, whose sums are 0
    const Run run{.block_begin = begin, .begin = k, .end = std::min(end, k + kRunCols)};
    // As even as they can be: 8 rows are 4 + 4.
    for (int64_t b = 0; b < blocks; ++b) {
      const int64_t row = b * rows / blocks;
      const int64_t count = (b + 1) * rows / blocks - row;
      kRows[count - 1](p, first_row + row, run, NextRun<kType>(p, run, rows, b, blocks), fetcher,
                       out + row * kTileRows);
    }
    k += kRunCols;
  } while (k < end);
}

// Joins the sums of inner blocks [block, block + count) as a binary tree.
template <DType kType>
void MultiplyTree(const TileProduct& p, int64_t first_row, int64_t rows, int64_t block,
                  int64_t count, Fetcher& fetcher, float* out) {
  if (count == 1) return MultiplyBlock<kType>(p, first_row, rows, block, fetcher, out);
  const auto left = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(count - 1)));
  alignas(64) float right[kGroupRows * kTileRows];
  MultiplyTree<kType>(p, first_row, rows, block, left, fetcher, out);
  MultiplyTree<kType>(p, first_row, rows, block + left, count - left, fetcher, right);
  const FloatTag d;
  for (int64_t i = 0; i < rows * kTileRows; i += kWidth) {
    hn::Store(hn::Add(hn::Load(d, out + i), hn::Load(d, right + i)), d, out + i);
  }
}

template <DType kType>
void MultiplyTile(const TileProduct& p) {
  alignas(64) float sums[kGroupRows * kTileRows];
  const int64_t groups = (p.rows + kGroupRows - 1) / kGroupRows;
  Fetcher fetcher(p.fetch, (p.rows + kBlockRows - 1) / kBlockRows * p.cols);
  for (int64_t g = 0; g < groups; ++g) {
    const int64_t first = g * p.rows / groups;
    const int64_t rows = (g + 1) * p.rows / groups - first;
    MultiplyTree<kType>(p, first, rows, 0, p.inner_blocks, fetcher, sums);
    for (int64_t r = 0; r < rows; ++r) {
      std::memcpy(p.out + (first + r) * p.out_stride, sums + r * kTileRows,
                  p.out_cols * sizeof(float));
    }
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
