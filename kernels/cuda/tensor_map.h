// How a matrix lies in memory, in the form that tensor copies take.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "absl/status/statusor.h"
#include "base/dtype.h"

namespace skein::kernels::cuda {

// Of data [rows, cols], 16-bit elements, `stride` of them from row to row, a multiple of 8; 16-byte
// aligned. Copies take boxes of `box_rows` rows by 64 columns, 128 bytes, and lay them down
// swizzled by as much.
absl::StatusOr<CUtensorMap> MapOf(DType dtype, const void* data, int64_t rows, int64_t cols,
                                  int64_t stride, int box_rows);

}  // namespace skein::kernels::cuda
