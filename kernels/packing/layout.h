// The shapes that back ends keep in memory, and the bytes that they take on a CPU;
// kernels/ops/sizes.h asks by kind of device. Pure: the planner needs no device.
#pragma once

#include <cstdint>
#include <vector>

#include "base/dtype.h"

namespace skein::kernels {

inline constexpr int32_t kMaxInnerBlocks = 1024;

// A matrix [rows, cols] multiplies from the right, transposed: out[r] = dot(w[r], in), so `cols` is
// the inner dimension. A vector (norm gain, RoPE frequencies) has one row.
struct WeightSpec {
  enum class Kind : uint8_t { kMatrix, kVector };
  Kind kind = Kind::kMatrix;
  int64_t rows = 0;
  int64_t cols = 0;
  DType dtype = DType::kBF16;  // of elements as they are loaded; vectors are kept as F32

  // The inner dimension is summed in this many blocks, whose sums are joined as a binary tree. A
  // row-parallel product over tp shards (tp = 1, 2, 4, 8) has 8 / tp blocks a shard, so that with
  // the all-reduce's tree every tp gives the same bits.
  int32_t inner_blocks = 1;  // at most kMaxInnerBlocks
  // Where they begin, and where the last one ends, [inner_blocks + 1]; empty: at
  // floor(i * cols / blocks). Blocks may be empty. Quantised rows are cut between their own blocks
  // only.
  std::vector<int64_t> inner_bounds;

  // Rows of unlike dtypes lie one after the other. Without parts, all rows are of `dtype`.
  struct Part {
    int64_t rows = 0;
    DType dtype = DType::kBF16;

    friend bool operator==(const Part&, const Part&) = default;
  };
  std::vector<Part> parts;

  friend bool operator==(const WeightSpec&, const WeightSpec&) = default;
};

// The form in which a cache keeps the elements of keys and values. Attention reads that form, also
// of rows that were written a moment ago, so that it does not matter how a sequence was cut into
// chunks.
enum class KvDType : uint8_t {
  kF32,
  kBF16,  // rounded to nearest, ties to even
  kF16,   // likewise; infinite beyond 65504
  kInt8,  // with a float scale for every token's key, and one for its value, of a head (kv_codec.h)
};

// The paged KV cache of one rank: `pages` pages of `page_size` tokens in each of `layers` layers.
struct KvSpec {
  int64_t layers = 0;
  int64_t kv_heads = 0;
  int64_t head_dim = 0;
  int64_t page_size = 0;  // tokens
  int64_t pages = 0;
  KvDType dtype = KvDType::kF32;

  friend bool operator==(const KvSpec&, const KvSpec&) = default;
};

// Vectors of the CPU back end hold at most this many floats; rows of padded data are multiples.
inline constexpr int64_t kLanes = 16;

// A matrix is kept as tiles of this many rows, the last one padded with zeros. In a tile the inner
// dimension runs outermost: one column of 64 rows is one (F32: two) pairs of cache lines, which a
// product for one input row turns into 4 AVX-512 (8 AVX2) accumulators, enough to hide the latency
// of a multiply-add.
inline constexpr int64_t kTileRows = 64;

// A tile of a quantised type is a list of units, one for each block of a row, that hold this block
// of all 64 rows: first, where a block's bytes do not fill words of 32 bits, its F16 number that
// stands alone, [64]; then its other bytes as words, [words, 64]. Lanes are rows, whatever the
// type, and four elements that follow each other lie in one word.
constexpr int64_t UnitBytes(DType dtype) { return kTileRows * BlockBytes(dtype); }
// Bytes of a unit before its words, and where these two bytes lie in a block.
constexpr int64_t UnitHalfBytes(DType dtype) {
  return BlockBytes(dtype) % 4 == 2 ? kTileRows * 2 : 0;
}
constexpr int64_t HalfInBlock(DType dtype) {
  return dtype == DType::kQ3_K || dtype == DType::kQ6_K ? BlockBytes(dtype) - 2 : 0;
}

// Returns the place of row `row` of a tile of a plain type in the tile's column. BF16 rows i and i
// + 16 share 32 bits, so that one shift and one mask make two vectors of floats.
constexpr int64_t PositionInTile(DType dtype, int64_t row) {
  if (dtype != DType::kBF16) return row;
  return row / 32 * 32 + row % 16 * 2 + row % 32 / 16;
}

// Returns the spec's parts; one where it lists none.
std::vector<WeightSpec::Part> PartsOf(const WeightSpec& spec);

// Whether elements of a type are integers times scales, by which rows of integers are multiplied.
constexpr bool HasIntegers(DType dtype) { return IsQuantized(dtype) && dtype != DType::kFp8; }
// Whether some rows are of such a type.
bool HasIntegerRows(const WeightSpec& spec);

// Returns where inner block `block` begins; at inner_blocks, where the last one ends.
int64_t InnerBound(const WeightSpec& spec, int64_t block);

// Returns the bytes of the CPU back end's packed form, padding included. Every part is in whole
// tiles, on cache lines of its own. Vectors are kept as F32.
int64_t PackedBytes(const WeightSpec& spec);

// The layout of the CPU's KV cache. A page holds for each layer and KV head: keys [head_dim,
// key_stride], transposed so that vectors run over slots; values [page_size, value_stride]; for
// int8 the scales of keys [key_stride] and of values [key_stride], as floats. Each of these begins
// on a cache line.
struct KvPageLayout {
  // Strides are in elements.
  int64_t key_stride = 0;    // page_size rounded up to kLanes
  int64_t value_stride = 0;  // head_dim rounded up to kLanes
  // Offsets are in bytes from the begin of a head's keys; 0 where there are no scales.
  int64_t values = 0;
  int64_t key_scales = 0;
  int64_t value_scales = 0;
  // These strides are in bytes.
  int64_t head_stride = 0;
  int64_t page_stride = 0;
  int64_t layer_stride = 0;
};
KvPageLayout PageLayout(const KvSpec& spec);

// The logits of so many rows are gathered from all shards at once, for draws that need them all.
inline constexpr int64_t kGatheredRows = 16;

// Returns the bytes of the CPU back end's cache.
int64_t KvBytes(const KvSpec& spec);

}  // namespace skein::kernels
