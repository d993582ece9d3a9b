// Attention of sequences that have several rows in the batch, over their paged keys and values:
// prompts, pieces of prompts behind cached prefixes, of any lengths beside each other.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "base/dtype.h"
#include "base/stream.h"
#include "kernels/cuda/kv_layout.h"
#include "kernels/cuda/paged_batch.h"

namespace skein::kernels::cuda {

// How it is done; results differ in the last bits.
enum class PrefillForm : uint8_t {
  kWarps,       // mma of a warp
  kWarpgroups,  // wgmma, half as fast again
};

// Causal: out[r, h] = sum over positions p up to r's own of softmax(scale * q[r, h] . k[p]) * v[p].
// Scores are never stored. Slots of a page that the sequence has not written are never used,
// whatever they hold. Tiles of positions begin at fixed places, so that a row's bits depend on its
// query and on what it sees alone, as long as the values of all rows of the batch are finite.
struct PrefillAttention {
  DType dtype = DType::kBF16;  // of queries, out, and a cache of 16 bits: BF16 or F16
  PagedBatch batch;
  // Sequences with fewer rows are left to DecodeAttention.
  int32_t fewest_rows = 2;
  int64_t rows = 0;   // of the batch, at most; the grid is made for so many
  int32_t heads = 0;  // any multiple of the KV heads
  KvLayer kv;
  float scale = 1;
  int32_t window = 0;       // > 0: a position sees itself and window - 1 before it
  const void* q = nullptr;  // [rows, heads * head_dim], 16-byte aligned, as out
  void* out = nullptr;      // [rows, heads * head_dim]
  int64_t q_stride = 0;     // elements from row to row, multiples of 8
  int64_t out_stride = 0;
  PrefillForm form = PrefillForm::kWarpgroups;
};

absl::Status Enqueue(const PrefillAttention& op, Stream stream);

// Of Enqueue, which has looked at `op`.
absl::Status EnqueueWarpgroupForm(const PrefillAttention& op, Stream stream);

}  // namespace skein::kernels::cuda
