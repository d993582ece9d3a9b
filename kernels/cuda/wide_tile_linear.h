// A product of up to 64 rows with a matrix, which is read once.
//
// A block has a tile of weight rows that is as wide as registers allow, so that `in` is fetched
// from the L2 cache few times. Where tiles are few, the blocks of a cluster share one: each
// multiplies a part of k, and they add their sums through each other's shared memory. Nobody waits
// for global memory, as products by stream-K do.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "base/dtype.h"
#include "base/stream.h"
#include "kernels/cuda/wide_tile.h"

namespace skein::kernels::cuda {

inline constexpr int64_t kWideTileInRows = 64;

// out[r, n] = sum over k of in[r, k] * weight[n, k], accumulated in float. With swiglu as
// FewRowsLinear has it.
// A row's bits depend on no other row; on the tile, and so on the device, they do.
struct WideTileLinear {
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
  WideTile tile;                // as WideTileOf(n, k) says
  int32_t multiprocessors = 0;  // of the device, or fewer: blocks, where there are no clusters
};

// ChooseWideTile() for the current device, which is asked on the first call only: a process has
// one. Errors count as a device without clusters.
WideTile WideTileOf(int64_t n, int64_t k, int32_t multiprocessors);

absl::Status Enqueue(const WideTileLinear& op, Stream stream);

}  // namespace skein::kernels::cuda
