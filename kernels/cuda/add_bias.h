// x + bias.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "base/dtype.h"
#include "base/stream.h"
#include "kernels/cuda/swiglu.h"

namespace skein::kernels::cuda {

// x[r, c] += bias[c], in place.
struct AddBias {
  DType dtype = DType::kBF16;  // BF16, F16 or F32
  int64_t rows = 0;
  int64_t cols = 0;             // a multiple of 8
  void* x = nullptr;            // [rows, cols], 16-byte aligned, as the next
  const float* bias = nullptr;  // [cols]: of gates and ups, all gates come first
  int64_t stride = 0;           // elements from row to row, a multiple of 8
  // kInterleaved: x has gates and ups by turns.
  GateUpLayout layout = GateUpLayout::kHalves;
};

absl::Status Enqueue(const AddBias& op, Stream stream);

}  // namespace skein::kernels::cuda
