// Multiplies one tile of a matrix with rows of input. Included once per instruction set.
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
#include "kernels/cpu/unpack-inl.h"

HWY_BEFORE_NAMESPACE();
namespace skein::kernels::HWY_NAMESPACE {

// A pair of vectors holds rows FirstRow(pair) ... and those 16 further, as BF16 packs them.
inline constexpr int kPairs = static_cast<int>(kTileRows / (2 * kWidth));
constexpr int64_t FirstRow(int pair) { return pair / kParts * 32 + pair % kParts * kWidth; }

// A block has up to so many input rows. Their accumulators stay in registers beside the weights and
// an input, with all pairs of a tile at once on AVX-512 (6 rows: 24 of 32 registers), with fewer
// the more rows there are on AVX2 (6 rows and one pair: 12 of 16).
inline constexpr int kBlockRows = kRowsAtOnce;
constexpr int PairsAtOnce(int rows) {
  return kPairs <= 2 ? kPairs : rows == 1 ? 4 : rows == 2 ? 2 : 1;
}

// A run has up to so many columns: with bf16, 128 KiB. It and the next one fit in an L2 cache of
// 512 KiB.
inline constexpr int64_t kRunCols = 1024;

// So many rows share a run. Their sums, 256 bytes each, lie on the stack, once a level of the tree
// of inner blocks.
inline constexpr int64_t kGroupRows = 8 * kBlockRows;
inline constexpr int64_t kLevel = kGroupRows * kTileRows;  // floats
inline constexpr int kMaxLevels = std::bit_width(static_cast<uint32_t>(kMaxInnerBlocks));

// Of quantised tiles a run is unpacked to floats before it is multiplied: 64 KiB of them, which
// stay in the L2 cache for all blocks of rows, or, for a single block, 16 KiB, which stay in the L1
// cache.
inline constexpr int64_t kUnpackedCols = 256;
inline constexpr int64_t kUnpackedColsOfBlock = 64;

// A single row takes weights as fast as memory gives them. It fetches this far ahead: what arrives
// within some of memory's latencies.
inline constexpr int64_t kPrefetchBytes = 4096;

// Columns of floats that were unpacked, [cols, kTileRows].
struct FloatColumns {
  using Element = float;
  static constexpr bool kInMemory = false;
  static HWY_INLINE void Load(const float* column, int pair, Vec& low, Vec& high) {
    low = hn::LoadU(FloatTag(), column + FirstRow(pair));
    high = hn::LoadU(FloatTag(), column + FirstRow(pair) + 16);
  }
};

// Those of a tile of a plain type; others are unpacked.
template <DType kType>
struct Columns : FloatColumns {};

template <>
struct Columns<DType::kF32> : FloatColumns {
  static constexpr bool kInMemory = true;
};

template <>
struct Columns<DType::kBF16> {
  using Element = uint16_t;
  static constexpr bool kInMemory = true;
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
struct Columns<DType::kF16> {
  using Element = uint16_t;
  static constexpr bool kInMemory = true;
  static HWY_INLINE void Load(const uint16_t* column, int pair, Vec& low, Vec& high) {
    const FloatTag d;
    const hn::Rebind<hwy::float16_t, FloatTag> dh;
    const auto* rows = reinterpret_cast<const hwy::float16_t*>(column) + FirstRow(pair);
    low = hn::PromoteTo(d, hn::LoadU(dh, rows));
    high = hn::PromoteTo(d, hn::LoadU(dh, rows + 16));
  }
};

// Tells what to fetch of the next run while a column is multiplied: two cache lines, and as many
// `step` bytes further for the column that follows; nothing where step is 0.
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
  int64_t bytes_;  // bytes of a block
  int64_t lines_;  // cache lines a step
};

// Columns [begin, end) of inner blocks [first_block, last_block), or of a part of one.
struct Run {
  int64_t begin = 0;
  int64_t end = 0;
  int32_t first_block = 0;
  int32_t last_block = 0;
};

HWY_INLINE int64_t BlockBegin(const TileProduct& p, int32_t block) { return p.inner_bounds[block]; }

// Adds in[r, k] * tile[k, n] to the blocks' sums, over the run's k, for kRows rows and the tile's
// rows of kCount pairs from `pair`; `column` is the run's first. The sums of inner blocks are
// joined as a binary tree, whose left parts are the largest powers of two of blocks. It is built
// the way one counts: each bit that is set in a block's number stands for a level below with that
// many blocks' sums. A block's own begin at the next level, sums[level] [rows, kTileRows], and join
// those below as soon as they are of as many blocks, or are the last. Loops are unrolled, since
// sums that a loop goes through would lie in memory.
template <typename Cols, int kRows, int kCount>
HWY_INLINE void MultiplyPairs(const TileProduct& p, int64_t first_row, const Run& run,
                              const typename Cols::Element* column, int pair, Ahead ahead,
                              Fetcher& fetcher, float* sums) {
  const FloatTag d;
  const float* in = p.in + first_row * p.cols;
  const int64_t stride = p.cols;
  Fetcher fetch = fetcher;  // a copy stays in registers
  int64_t k = run.begin;
  for (int32_t block = run.first_block; block < run.last_block; ++block) {
    const int64_t block_end = BlockBegin(p, block + 1);
    const int64_t end = std::min(run.end, block_end);
    const int level = std::popcount(static_cast<uint32_t>(block));
    float* out = sums + level * kLevel;
    const auto at = [pair](int r, int c) { return r * kTileRows + FirstRow(pair + c); };
    Vec low[kRows][kCount];
    Vec high[kRows][kCount];
    const bool begun = k > BlockBegin(p, block);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
      for (int c = 0; c < kCount; ++c) {
        low[r][c] = begun ? hn::LoadU(d, out + at(r, c)) : hn::Zero(d);
        high[r][c] = begun ? hn::LoadU(d, out + at(r, c) + 16) : hn::Zero(d);
      }
    }
    const float* x = in + k;
    const float* const x_end = in + end;
    k = end;
    for (; x < x_end; ++x, column += kTileRows) {
      Vec w_low[kCount];
      Vec w_high[kCount];
#pragma GCC unroll 8
      for (int c = 0; c < kCount; ++c) {
        Cols::Load(column, pair + c, w_low[c], w_high[c]);
      }
      if (kRows == 1 && Cols::kInMemory) {
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
        const auto factor = hn::Set(d, x[r * stride]);
#pragma GCC unroll 8
        for (int c = 0; c < kCount; ++c) {
          low[r][c] = hn::MulAdd(factor, w_low[c], low[r][c]);
          high[r][c] = hn::MulAdd(factor, w_high[c], high[r][c]);
        }
      }
    }
    if (end == block_end) {
      const bool last = block + 1 == p.inner_blocks;
      const int joins = last ? level : std::countr_one(static_cast<uint32_t>(block));
      for (int join = 0; join < joins; ++join) {
        out -= kLevel;
#pragma GCC unroll 8
        for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
          for (int c = 0; c < kCount; ++c) {
            low[r][c] = hn::Add(hn::LoadU(d, out + at(r, c)), low[r][c]);
            high[r][c] = hn::Add(hn::LoadU(d, out + at(r, c) + 16), high[r][c]);
          }
        }
      }
    }
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
      for (int c = 0; c < kCount; ++c) {
        hn::StoreU(low[r][c], d, out + at(r, c));
        hn::StoreU(high[r][c], d, out + at(r, c) + 16);
      }
    }
  }
  fetcher = fetch;
}

template <typename Cols, int kRows>
HWY_NOINLINE void MultiplyRows(const TileProduct& p, int64_t first_row, const Run& run,
                               const typename Cols::Element* column, const Ahead& ahead,
                               Fetcher& fetcher, float* sums) {
  constexpr int kCount = PairsAtOnce(kRows);
  for (int pair = 0; pair < kPairs; pair += kCount) {
    MultiplyPairs<Cols, kRows, kCount>(p, first_row, run, column, pair, ahead, fetcher, sums);
  }
}

// Cuts input rows into blocks, as even as they can be: 8 rows are 4 + 4.
struct RowBlocks {
  int64_t rows;
  int64_t count = (rows + kBlockRows - 1) / kBlockRows;
  int64_t RowOf(int64_t block) const { return block * rows / count; }
};

// Returns the first block of part `part` of the product.
HWY_INLINE int64_t FirstBlock(const TileProduct& p, int64_t part, const RowBlocks& blocks) {
  return part * blocks.count / p.parts;
}

// Tells what block `block` of those that share a run fetches of the next one.
template <typename Cols>
Ahead NextRun(const TileProduct& p, const Run& run, int64_t block, const RowBlocks& blocks) {
  constexpr int64_t kColumnBytes = kTileRows * sizeof(typename Cols::Element);
  // A single row fetches for itself; what was unpacked is in a cache.
  if (blocks.rows == 1 || !Cols::kInMemory) return {};
  const std::byte* next = p.tile + run.end * kColumnBytes;
  if (blocks.count == 1) return {{next, next + kColumnBytes / 2}, kColumnBytes};
  if (block > 1) return {};  // the first two fetched half each
  next += block * (run.end - run.begin) * kColumnBytes / 2;
  return {{next, next + kColumnBytes / 4}, kColumnBytes / 2};
}

template <typename Cols>
void MultiplyRun(const TileProduct& p, int64_t first_row, const RowBlocks& blocks, const Run& run,
                 const typename Cols::Element* column, Fetcher& fetcher, float* sums) {
  using Rows = void (*)(const TileProduct&, int64_t, const Run&, const typename Cols::Element*,
                        const Ahead&, Fetcher&, float*);
  static constexpr Rows kRows[] = {MultiplyRows<Cols, 1>, MultiplyRows<Cols, 2>,
                                   MultiplyRows<Cols, 3>, MultiplyRows<Cols, 4>,
                                   MultiplyRows<Cols, 5>, MultiplyRows<Cols, 6>};
  static_assert(std::size(kRows) == kBlockRows);
  for (int64_t b = FirstBlock(p, p.part, blocks); b < FirstBlock(p, p.part + 1, blocks); ++b) {
    const int64_t row = blocks.RowOf(b);
    kRows[blocks.RowOf(b + 1) - row - 1](p, first_row + row, run, column,
                                         NextRun<Cols>(p, run, b, blocks), fetcher,
                                         sums + row * kTileRows);
  }
}

// Computes sums [rows, kTileRows], the product, by runs; short inner blocks share one.
template <DType kType>
void MultiplyRuns(const TileProduct& p, int64_t first_row, const RowBlocks& blocks,
                  Fetcher& fetcher, float* sums) {
  using Element = typename Columns<kType>::Element;
  constexpr bool kUnpacks = IsQuantized(kType);
  alignas(64) float unpacked[kUnpacks ? kUnpackedCols * kTileRows : 1];
  const int64_t most_cols = !kUnpacks           ? kRunCols
                            : blocks.count == 1 ? kUnpackedColsOfBlock
                                                : kUnpackedCols;
  Run run;
  do {
    run.begin = run.end;
    const int64_t most = run.begin + most_cols;
    run.last_block = run.first_block + 1;
    while (run.last_block < p.inner_blocks && BlockBegin(p, run.last_block + 1) <= most) {
      ++run.last_block;
    }
    const int64_t end = BlockBegin(p, run.last_block);
    run.end = std::min(end, most);
    const Element* column = nullptr;
    if constexpr (kUnpacks) {
      Unpack<kType>(p.tile, run.begin, run.end, unpacked);
      column = unpacked;
    } else {
      column = reinterpret_cast<const Element*>(p.tile) + run.begin * kTileRows;
    }
    MultiplyRun<Columns<kType>>(p, first_row, blocks, run, column, fetcher, sums);
    if (run.end == end) run.first_block = run.last_block;
  } while (run.first_block < p.inner_blocks);
}

template <DType kType>
void MultiplyTile(const TileProduct& p) {
  alignas(64) float sums[kMaxLevels * kLevel];
  const int64_t groups = (p.rows + kGroupRows - 1) / kGroupRows;
  Fetcher fetcher(p.fetch, (p.rows + kBlockRows - 1) / kBlockRows * p.cols / p.parts);
  for (int64_t g = 0; g < groups; ++g) {
    const int64_t first = g * p.rows / groups;
    const RowBlocks blocks{(g + 1) * p.rows / groups - first};
    MultiplyRuns<kType>(p, first, blocks, fetcher, sums);
    const int64_t begin = blocks.RowOf(FirstBlock(p, p.part, blocks));
    const int64_t end = blocks.RowOf(FirstBlock(p, p.part + 1, blocks));
    for (int64_t r = begin; r < end; ++r) {
      std::memcpy(p.out + (first + r) * p.out_stride, sums + r * kTileRows,
                  p.out_cols * sizeof(float));
    }
  }
}

}  // namespace skein::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // SKEIN_KERNELS_CPU_MATMUL_INL_H_
