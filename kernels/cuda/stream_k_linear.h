// A product of up to 32 rows with a large matrix, which is read once.
//
// Blocks have equal shares of all (tile of weight rows, step of k), wherever tiles end: "stream-K"
// (Osama et al., Stream-K: Work-centric Parallel Decomposition for Dense Matrix-Matrix
// Multiplication on the GPU, 2023). So all multiprocessors read until the end, whatever the shape.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "base/dtype.h"
#include "base/stream.h"

namespace skein::kernels::cuda {

inline constexpr int64_t kStreamKRows = 32;

// out[r, n] = sum over k of in[r, k] * weight[n, k], accumulated in float. With swiglu as
// FewRowsLinear has it.
// A row's bits depend on no other row; on how many there are, they do.
struct StreamKLinear {
  DType dtype = DType::kBF16;      // of in and weight: BF16 or F16
  DType out_dtype = DType::kBF16;  // dtype, or F32
  bool swiglu = false;             // n is a multiple of 16, out of dtype
  int64_t rows = 0;                // 1 to 32
  int64_t n = 0;                   // a multiple of 8
  int64_t k = 0;                   // a multiple of 8
  const void* in = nullptr;        // [rows, k], 16-byte aligned, as all of these
  const void* weight = nullptr;    // [n, k], not written while other kernels of the stream run
  void* out = nullptr;             // [rows, n], or [rows, n / 2] with swiglu; other memory than in
  int64_t in_stride = 0;           // elements from row to row, multiples of 8
  int64_t weight_stride = 0;
  int64_t out_stride = 0;
  int32_t multiprocessors = 0;  // of the device, or fewer
  // StreamKWorkspaceBytes() that are 0xff at first. Used by one launch at a time.
  void* workspace = nullptr;
};

absl::Status Enqueue(const StreamKLinear& op, Stream stream);

}  // namespace skein::kernels::cuda
