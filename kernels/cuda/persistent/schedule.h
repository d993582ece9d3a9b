// A Program as one persistent kernel runs it: which operations go together, what blocks exchange,
// and who does how much. Pure.
//
// Every block of the kernel runs all of these operations, each on its share. A product's share is
// whole tiles of 16 rows of the weight; attention's is computed on the device, since it depends on
// lengths. What an operation gives is exchanged by way of an arena, in which every vector of every
// layer has a place of its own, so that its words say themselves whether they have come.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/ops/program.h"
#include "kernels/packing/layout.h"

namespace skein::kernels::cuda {

// Rows of a step, at most: two tiles of mma's.
inline constexpr int kMostStepRows = 16;
// A unit of weights, which one copy brings: rows by columns of 16 bits.
inline constexpr int kUnitRows = 16;
inline constexpr int kUnitCols = 512;
// Columns of a panel of a unit, which one warp multiplies, and of a tile of a vector, which one
// product of mma does.
inline constexpr int kPanelCols = 64;
inline constexpr int kTileCols = 16;

// Where a vector lies in the arena of a step of `rows` rows: at rows * place.
using ArenaPlace = int64_t;  // bytes a row

struct ScheduledOp {
  enum class Kind : uint8_t {
    kEmbed,      // out = rows of a table, by token; or it sends them, as a product does
    kTakeIn,     // out = the input port
    kProduct,    // in * weight^T, and what `then` says
    kAttention,  // over the KV cache, which takes the batch's keys and values first
    kSum,        // out = old + bias + what the shards sent, of which each gives all to each
  };
  // Behind a product.
  enum class Then : uint8_t {
    kQkv,     // out, row by row, for attention
    kSwiGlu,  // out = silu(gates) * ups
    kAdd,     // out = old + product
    kSend,    // to all shards, for the sum behind it
    kLogits,  // the port of logits
  };
  Kind kind = Kind::kProduct;
  Then then = Then::kQkv;
  ArenaPlace in = 0, old = 0, out = 0;  // old < 0: there is none
  int32_t sum = -1;                     // over shards, its number: of what sends and what sums
  bool to_port = false;                 // `out` is the output port, too
  // gain >= 0: a norm of `out` is read, too. Who makes `out` also gives normed = out * gain, and
  // the sums of its squares over tiles of 16 columns, [tiles] floats a row.
  WeightId gain = -1;
  ArenaPlace normed = 0, squares = 0;
  // Of a product whose `in` is such a normed vector: the other factor of its rows is
  // 1 / sqrt(mean + eps), from the squares.
  bool of_normed = false;
  ArenaPlace in_squares = 0;
  float eps = 0;
  WeightId weight = -1;  // of a product; an embedding's table
  WeightId bias = -1;    // of a product or a sum; < 0: there is none
  int64_t cols = 0;      // of a product's `in`; else of `out`
  int64_t rows = 0;      // of a product's weight
  // Tiles of 16 weight rows from this one on are nobody's share: blocks take one after the other,
  // as they are done with their own.
  int32_t first_free_tile = 0;
  int64_t first_id = 0, count = 0;  // of an embedding
  // Attention's. The gains of norms of query and key heads, of which `eps` is; < 0: heads are not
  // normalised.
  WeightId q_gain = -1, k_gain = -1;
  int32_t layer = 0;
  int32_t window = 0;
  float scale = 0;
  int32_t op = 0;  // of the Program, for messages
};

// What attention has in common in all layers.
struct AttentionHeads {
  int32_t heads = 0;
  int32_t kv_heads = 0;
  int32_t head_dim = 0;
  WeightId inverse_frequencies = -1;
};

struct Schedule {
  std::vector<ScheduledOp> ops;
  AttentionHeads attention;
  int64_t row_bytes = 0;  // of the arena
  int32_t sums = 0;       // over shards
  int64_t sum_cols = 0;   // of the widest
  // [ops][blocks + 1]: block b has tiles [at(b), at(b + 1)) of a product's weight, those that are
  // free aside.
  std::vector<uint16_t> shares;
};

// What a warp has of a block's memory for a product: at the begin columns of `in`, at the end sums.
// Where all of a warp's columns leave room for enough sums, they stay there for all of the
// operation; else some at a time, and where sums will be.
inline constexpr int kSumBytes = 16 * 8 * 4;  // of a tile of 16 weight rows and 8 rows
inline constexpr int kMostSums = 8;           // tiles of them
inline constexpr int kOfWarpBytes = kMostSums * kSumBytes;
inline constexpr int kStagedRowBytes = 128;  // of kUnitCols columns
// Bytes of `in` that stay, of so many rows; 0: it does not.
constexpr int KeptBytes(int rows, int cols) {
  const int bytes = rows * ((cols + kUnitCols - 1) / kUnitCols) * kStagedRowBytes;
  return bytes <= kOfWarpBytes / 2 ? bytes : 0;
}
constexpr int SumSlots(int rows, int cols) {
  return (kOfWarpBytes - KeptBytes(rows, cols)) / kSumBytes;
}

// Segments of a KV head, which attention gives to blocks of the kernel: so many at most that one
// row keeps all of them busy. And warps that have parts of a segment.
constexpr int MostSegments(int kv_heads) {
  return kv_heads >= 8 ? 16 : (128 + kv_heads - 1) / kv_heads;
}
inline constexpr int kSegmentParts = 8;

// Bytes of the device's memory for steps of so many rows.
struct StepMemory {
  int64_t arena = 0;  // of one of two
  int64_t parts = 0;  // of attention: see exchange.cuh

  int64_t sum() const { return 2 * arena + parts; }
};
StepMemory MemoryOf(const Schedule& schedule, int64_t rows);

// Without shares. Unimplemented, with the operation's index and what it is, for Programs that such
// a kernel cannot run.
absl::StatusOr<Schedule> MakeSchedule(const Program& program);

// Steps of up to so many rows, and of more, have shares of their own.
inline constexpr int kFewRows = 2;

// Gives each of `blocks` blocks its share for steps of so many rows, and leaves some tiles free.
void ShareTiles(int32_t blocks, int32_t rows, Schedule& schedule);

}  // namespace skein::kernels::cuda
