// Mixtures of experts on the CPU: one expert after the other, with the rows that chose it. Internal
// to the CPU back end.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "base/thread_pool.h"
#include "kernels/cpu/products.h"
#include "kernels/cpu/simd_ops.h"
#include "kernels/host/memory.h"
#include "kernels/ops/program.h"

namespace skein::kernels {

class Experts {
 public:
  // The others outlive it.
  Experts(const SimdOps& simd, ThreadPool& pool, Products& products)
      : simd_(simd), pool_(pool), products_(products) {}

  // Allocates what the largest operation takes, as ExpertBytes counts it.
  absl::Status Allocate(int64_t bytes);

  // An ExpertsOp of so many rows.
  struct Batch {
    int64_t rows = 0;
    int64_t cols = 0;
    int64_t inner = 0;              // of an expert, on this rank
    int64_t chosen = 0;             // experts of a row
    const float* in = nullptr;      // [rows, cols]
    const float* routes = nullptr;  // [rows, 2 * chosen]
    float* out = nullptr;           // [rows, chosen, cols]
  };
  void Compute(const ExpertsOp& op, const Batch& batch);

 private:
  // Places of the output: row `slot / chosen` chose the expert as its `slot % chosen`-th.
  using Slots = absl::Span<const int64_t>;
  void ComputeOne(const ExpertsOp& op, const Batch& batch, int32_t expert, Slots slots);

  const SimdOps& simd_;
  ThreadPool& pool_;
  Products& products_;
  HostMemory memory_;
};

}  // namespace skein::kernels
