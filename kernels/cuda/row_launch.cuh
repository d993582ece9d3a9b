// The launch of kernels over rows whose threads have 8 columns of a row each.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/vectors.cuh"

namespace skein::kernels::cuda {

inline constexpr int kRowThreads = 256;

// Blocks (columns / 2048, rows). The grid's y dimension ends at 65,535: blocks take further rows in
// turn. cols: a multiple of 8.
inline LaunchShape ShapeOfRows(const char* name, int64_t rows, int64_t cols) {
  constexpr int64_t kMaxGridRows = 65535;
  constexpr int64_t kBlockCols = int64_t{kRowThreads} * kVector;
  return {name,
          dim3(static_cast<unsigned>((cols + kBlockCols - 1) / kBlockCols),
               static_cast<unsigned>(std::min(rows, kMaxGridRows))),
          dim3(kRowThreads)};
}

}  // namespace skein::kernels::cuda
