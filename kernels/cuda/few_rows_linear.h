// A product of a few rows with a large matrix, which is read once.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "base/dtype.h"
#include "base/stream.h"

namespace skein::kernels::cuda {

inline constexpr int64_t kFewRows = 16;

// out[r, n] = sum over k of in[r, k] * weight[n, k], + bias[n], + residual[r, n].
// Or with swiglu: weight's rows are 8 gates, their 8 ups, the next 8 gates ..., and
// out[r, i] = silu(gate i's product) * up i's product, [rows, n / 2]; no bias, no residual.
// A row's bits depend on no other row, nor on how many there are.
struct FewRowsLinear {
  DType dtype = DType::kBF16;      // of in and weight: BF16 or F16
  DType out_dtype = DType::kBF16;  // of out and residual: dtype, or F32
  bool swiglu = false;             // n is a multiple of 16, out of dtype
  int64_t rows = 0;                // 1 to 16
  int64_t n = 0;
  int64_t k = 0;                   // a multiple of 8
  const void* in = nullptr;        // [rows, k], 16-byte aligned, as weight
  const void* weight = nullptr;    // [n, k], not written while other kernels of the stream run
  const float* bias = nullptr;     // [n], or null
  const void* residual = nullptr;  // [rows, n], or null; may be out
  void* out = nullptr;             // other memory than in
  int64_t in_stride = 0;           // elements from row to row, a multiple of 8
  int64_t weight_stride = 0;       // likewise
  int64_t residual_stride = 0;
  int64_t out_stride = 0;
  int32_t multiprocessors = 0;  // of the device
};

absl::Status Enqueue(const FewRowsLinear& op, Stream stream);

}  // namespace skein::kernels::cuda
