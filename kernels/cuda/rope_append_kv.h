// Rotates queries and keys and writes keys and values into the KV cache, in one pass.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "base/dtype.h"
#include "base/stream.h"
#include "kernels/cuda/kv_layout.h"

namespace skein::kernels::cuda {

// qkv [rows, (heads + 2 * kv_heads) * head_dim]. Queries are rotated in place by their position:
// pairs i, i + head_dim / 2; angle = position * inverse_frequencies[i], a product in float. Keys
// are rotated on their way to the cache, and stay as they are in qkv. A cache of int8 takes each
// key, as rotated, and each value of a head with a scale of its own (kv_codec.h).
struct RopeAppendKv {
  DType dtype = DType::kBF16;  // of qkv, and of a cache of 16 bits: BF16 or F16
  int64_t rows = 0;
  int32_t heads = 0;
  void* qkv = nullptr;     // 16-byte aligned
  int64_t qkv_stride = 0;  // elements from row to row, a multiple of 8
  KvLayer kv;
  const float* inverse_frequencies = nullptr;  // [head_dim / 2], 16-byte aligned
  const int32_t* positions = nullptr;          // [rows], on the device, as the next
  // [rows]: page * page_size + offset. Negative: the row is padding, and nothing of it is touched.
  const int64_t* kv_slots = nullptr;
};

absl::Status Enqueue(const RopeAppendKv& op, Stream stream);

}  // namespace skein::kernels::cuda
