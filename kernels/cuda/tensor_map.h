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

// Of data [rows, cols] without gaps, cols a multiple of 64, as panels of 64 columns. Copies take
// `box_panels` panels of `box_rows` rows, one panel after the other, swizzled likewise; what lies
// beyond comes as zeros.
absl::StatusOr<CUtensorMap> PanelMapOf(DType dtype, const void* data, int64_t rows, int64_t cols,
                                       int box_rows, int box_panels);

}  // namespace skein::kernels::cuda
