// A product in which a row's bits depend on the row and the matrix alone: not on how many other
// rows there are, nor on how many shards have the matrix's columns.
//
// Blocks have whole tiles, and each sum is added in one order, after He, "Defeating Nondeterminism
// in LLM Inference" (2025). With few rows that leaves multiprocessors idle, which stream-K does
// not.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "base/dtype.h"
#include "base/stream.h"

namespace skein::kernels::cuda {

// out[r, n] = sum over k of in[r, k] * weight[n, k], accumulated in float: blocks of k by
// themselves, then their sums as base/tree_sum.h has it. With swiglu as FewRowsLinear has it.
struct BatchInvariantLinear {
  DType dtype = DType::kBF16;      // of in and weight: BF16 or F16
  DType out_dtype = DType::kBF16;  // dtype, or F32
  bool swiglu = false;             // n is a multiple of 16, out of dtype
  int64_t rows = 0;
  int64_t n = 0;  // a multiple of 8
  int64_t k = 0;  // a multiple of 8
  // 1, 2, 4 or 8, as WeightSpec::inner_blocks. Of more than one, k is a multiple of 16 each.
  int32_t blocks = 1;
  const void* in = nullptr;      // [rows, k], 16-byte aligned, as all of these
  const void* weight = nullptr;  // [n, k], not written while other kernels of the stream run
  void* out = nullptr;           // [rows, n], or [rows, n / 2] with swiglu; other memory than in
  int64_t in_stride = 0;         // elements from row to row, multiples of 8
  int64_t weight_stride = 0;
  int64_t out_stride = 0;
};

absl::Status Enqueue(const BatchInvariantLinear& op, Stream stream);

}  // namespace skein::kernels::cuda
