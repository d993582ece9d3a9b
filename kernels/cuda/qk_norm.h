// RMS norms of query and key heads.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "base/dtype.h"
#include "base/stream.h"

namespace skein::kernels::cuda {

// qkv [rows, (heads + 2 * kv_heads) * head_dim]: of each query and key head, in place,
// x = x / sqrt(mean(x^2) + eps) * gain.
struct QkNorm {
  DType dtype = DType::kBF16;  // BF16 or F16
  int64_t rows = 0;
  int32_t heads = 0;
  int32_t kv_heads = 0;
  int32_t head_dim = 0;           // a multiple of 4, up to 128
  void* qkv = nullptr;            // 16-byte aligned, as gains
  int64_t qkv_stride = 0;         // elements from row to row, a multiple of 8
  const float* q_gain = nullptr;  // [head_dim], as the next
  const float* k_gain = nullptr;
  float eps = 0;
};

absl::Status Enqueue(const QkNorm& op, Stream stream);

}  // namespace skein::kernels::cuda
