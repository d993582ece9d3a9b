// Rows by number: a table's by token, a batch's that are outputs.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "base/dtype.h"
#include "base/stream.h"

namespace skein::kernels::cuda {

// out[i] = in[ids[i] - first_id]; zeros where that is outside of [0, count).
struct GatherRows {
  DType in_dtype = DType::kBF16;   // BF16, F16 or F32
  DType out_dtype = DType::kBF16;  // in_dtype, or F32
  int64_t rows = 0;                // of out
  int64_t cols = 0;                // a multiple of 8
  const int32_t* ids = nullptr;    // [rows], on the device
  int64_t first_id = 0;
  int64_t count = 0;         // rows of in
  const void* in = nullptr;  // [count, cols], 16-byte aligned, as out
  void* out = nullptr;       // [rows, cols]
  int64_t in_stride = 0;     // elements from row to row, multiples of 8
  int64_t out_stride = 0;
};

absl::Status Enqueue(const GatherRows& op, Stream stream);

}  // namespace skein::kernels::cuda
