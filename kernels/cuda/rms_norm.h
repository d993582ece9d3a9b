// Residual sum and RMSNorm in one pass.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "base/dtype.h"
#include "base/stream.h"

namespace skein::kernels::cuda {

// residual[r] += delta[r], rounded to the residual's dtype, then
// out[r] = residual[r] / sqrt(mean(residual[r]^2) + eps) * gain.
struct RmsNorm {
  DType dtype = DType::kBF16;           // of out: BF16 or F16
  DType residual_dtype = DType::kBF16;  // dtype, or F32
  DType delta_dtype = DType::kBF16;     // likewise, where there is one
  int64_t rows = 0;
  int64_t cols = 0;             // a multiple of 8, to 32768
  void* residual = nullptr;     // [rows, cols], 16-byte aligned, as all of these
  const void* delta = nullptr;  // [rows, cols]; null: the residual stays, and is only read
  const float* gain = nullptr;  // [cols]
  float eps = 0;
  void* out = nullptr;          // [rows, cols]; null: only the sum. May be delta, or residual if
                                // there is no delta, where that has the same dtype
  int64_t residual_stride = 0;  // elements from row to row, multiples of 8
  int64_t delta_stride = 0;
  int64_t out_stride = 0;
};

// Queues it. InvalidArgument or Unimplemented for what breaks the above.
absl::Status Enqueue(const RmsNorm& op, Stream stream);

}  // namespace skein::kernels::cuda
