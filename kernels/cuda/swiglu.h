// SiLU(gate) * up.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "base/dtype.h"
#include "base/stream.h"

namespace skein::kernels::cuda {

// Where a row of gate_up [2 * cols] holds what.
enum class GateUpLayout : uint8_t {
  kHalves,       // all gates, then all ups
  kInterleaved,  // 8 gates, their 8 ups, the next 8 gates ...: a tile of a product holds both
};

// out[r, i] = gate / (1 + exp(-gate)) * up.
struct SwiGlu {
  DType dtype = DType::kBF16;  // BF16 or F16
  GateUpLayout layout = GateUpLayout::kHalves;
  int64_t rows = 0;
  int64_t cols = 0;               // of out; a multiple of 8
  const void* gate_up = nullptr;  // [rows, 2 * cols], 16-byte aligned, as out
  void* out = nullptr;            // [rows, cols]
  int64_t gate_up_stride = 0;     // elements from row to row, multiples of 8
  int64_t out_stride = 0;
};

absl::Status Enqueue(const SwiGlu& op, Stream stream);

}  // namespace skein::kernels::cuda
