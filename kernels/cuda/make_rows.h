// Random weights, made where they lie.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "base/counted_numbers.h"
#include "base/dtype.h"
#include "base/stream.h"

namespace skein::kernels::cuda {

// Rows of gates, and of ups, that follow each other in an interleaved matrix: 8 rows of gates,
// their 8 ups, the next 8 gates ...
inline constexpr int64_t kInterleave = 8;

// Row r of the numbers becomes row `first_row + r` of a matrix of BF16 or F16.
struct MakeRows {
  CountedRows numbers;
  DType dtype = DType::kBF16;
  int64_t rows = 0;
  int64_t cols = 0;        // of the matrix, too
  int64_t first_row = 0;   // as a reader counts: of an interleaved matrix all gates come first
  int64_t gates = 0;       // of an interleaved matrix, a multiple of kInterleave; 0: it is none
  void* matrix = nullptr;  // [rows, cols], 16-byte aligned
};

absl::Status Enqueue(const MakeRows& op, Stream stream);

}  // namespace skein::kernels::cuda
