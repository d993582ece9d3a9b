// Attention of sequences that have one row in the batch, over their paged keys and values.
//
// The work is one list: sequence by sequence, KV head by KV head, block of 16 positions by block.
// Each worker, a warp, takes an equal run of it, wherever that begins and ends; a KV head that
// several workers have parts of is put together afterwards. PlanDecode cuts the list on the device,
// once a step for all layers that share a window. So grids depend on nothing but capacities, and a
// captured graph fits any lengths.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "base/dtype.h"
#include "base/stream.h"
#include "kernels/cuda/decode_sizes.h"
#include "kernels/cuda/kv_layout.h"
#include "kernels/cuda/paged_batch.h"

namespace skein::kernels::cuda {

struct PlanDecode {
  PagedBatch batch;
  int32_t kv_heads = 0;
  int32_t window = 0;  // > 0: a position sees itself and window - 1 before it
  int32_t multiprocessors = 0;
  void* plan = nullptr;  // DecodePlanBytes
};

// One block.
absl::Status Enqueue(const PlanDecode& op, Stream stream);

// out[r, h] = sum over positions p of softmax(scale * q[r, h] . k[p]) * v[p]. Sequences with other
// than one row are left to PrefillAttention. Slots of a page that the sequence has not written are
// never used, whatever they hold. Where the cache is of int8, a query is rounded to 16 bits of its
// largest element.
struct DecodeAttention {
  DType dtype = DType::kBF16;  // of queries, out, and a cache of 16 bits: BF16 or F16
  PagedBatch batch;            // the plan's, as are window and multiprocessors
  int32_t heads = 0;           // 1 to 16 for each KV head
  KvLayer kv;
  float scale = 1;
  int32_t window = 0;
  int32_t multiprocessors = 0;
  const void* plan = nullptr;
  // The two kernels before write no plan, lengths nor page tables, and of the cache the sequences'
  // last positions alone, by the second one: all else is fetched while they still run. The first
  // one begins the second behind its own wait (launch.cuh).
  bool early = false;
  void* partials = nullptr;  // DecodePartialBytes
  const void* q = nullptr;   // [rows, heads * head_dim], 16-byte aligned, as out
  void* out = nullptr;       // [rows, heads * head_dim]
  int64_t q_stride = 0;      // elements from row to row, multiples of 8
  int64_t out_stride = 0;
};

absl::Status Enqueue(const DecodeAttention& op, Stream stream);

}  // namespace skein::kernels::cuda
