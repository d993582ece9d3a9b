// Shapes of what back ends keep in memory, and how many bytes they take. Pure: the planner asks
// without a device.
#pragma once

#include <cstdint>

#include "base/dtype.h"

namespace skein::kernels {

// A matrix [rows, cols] that multiplies from the right, transposed: out[r] = dot(w[r], in), so
// `cols` is the inner dimension. A vector (norm gain, RoPE frequencies) has one row.
struct WeightSpec {
  enum class Kind : uint8_t { kMatrix, kVector };
  Kind kind = Kind::kMatrix;
  int64_t rows = 0;
  int64_t cols = 0;
  DType dtype = DType::kBF16;  // of the elements handed to PackRows; vectors are kept as F32

  // The inner dimension is summed in this many blocks, bounded by floor(i * cols / blocks), whose
  // sums are joined as a binary tree. A row-parallel product over tp shards (tp = 1, 2, 4, 8) has
  // 8 / tp blocks a shard, so that with the all-reduce's tree every tp gives the same bits.
  int32_t inner_blocks = 1;

  friend bool operator==(const WeightSpec&, const WeightSpec&) = default;
};

// The paged KV cache of one rank: `pages` pages of `page_size` slots in each of `layers` layers.
// Keys and values are kept as F32 on the CPU.
struct KvSpec {
  int64_t layers = 0;
  int64_t kv_heads = 0;
  int64_t head_dim = 0;
  int64_t page_size = 0;  // slots
  int64_t pages = 0;

  friend bool operator==(const KvSpec&, const KvSpec&) = default;
};

// Bytes of the CPU back end's packed form, padding included.
int64_t PackedBytes(const WeightSpec& spec);
int64_t KvBytes(const KvSpec& spec);

}  // namespace skein::kernels
