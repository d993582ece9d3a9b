// A product of up to 64 rows with a matrix of few tiles, which is read once.
//
// Blocks of a cluster each multiply a part of k for the same tile of weight rows, and add their
// sums through each other's shared memory. For matrices whose tiles, so split, fill the device
// once: there nobody waits for global memory, as products by stream-K do.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "base/dtype.h"
#include "base/stream.h"

namespace skein::kernels::cuda {

inline constexpr int64_t kSplitKRows = 64;

// out[r, n] = sum over k of in[r, k] * weight[n, k], accumulated in float. With swiglu as
// FewRowsLinear has it.
// A row's bits depend on no other row; on how many there are, and on the device, they do.
struct SplitKLinear {
  DType dtype = DType::kBF16;      // of in and weight: BF16 or F16
  DType out_dtype = DType::kBF16;  // dtype, or F32
  bool swiglu = false;             // n is a multiple of 16, out of dtype
  int64_t rows = 0;                // 1 to 64
  int64_t n = 0;                   // a multiple of 8
  int64_t k = 0;                   // a multiple of 8
  const void* in = nullptr;        // [rows, k], 16-byte aligned, as all of these
  const void* weight = nullptr;    // [n, k], not written while other kernels of the stream run
  void* out = nullptr;             // [rows, n], or [rows, n / 2] with swiglu; other memory than in
  int64_t in_stride = 0;           // elements from row to row, multiples of 8
  int64_t weight_stride = 0;
  int64_t out_stride = 0;
  int32_t blocks = 1;  // of a cluster: 1, 2, 4 or 8, as SplitKBlocks() says
};

// How many blocks of a cluster share a tile of a matrix of n rows, so that all clusters run at once
// on the current device: 8, 4, 2; or 1, where only whole tiles do or those are too many. Asks the
// device on its first call only: a process has one. Errors count as 1.
int32_t SplitKBlocks(int64_t n);

absl::Status Enqueue(const SplitKLinear& op, Stream stream);

}  // namespace skein::kernels::cuda
