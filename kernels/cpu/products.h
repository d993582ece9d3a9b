// Products of rows with packed matrices, shared out over threads. Internal to the CPU back end.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "base/thread_pool.h"
#include "kernels/cpu/cpu_memory.h"
#include "kernels/cpu/simd_ops.h"
#include "kernels/host/memory.h"
#include "kernels/ops/backend.h"
#include "kernels/packing/layout.h"

namespace skein::kernels {

// An operation of fewer multiply-adds (or as cheap) stays on the calling thread: they take some 1
// us, as long as handing it out.
inline constexpr int64_t kMinParallelWork = 64 * 1024;
// An exponential costs as many multiply-adds.
inline constexpr int64_t kExpWork = 16;

// Calls fn(i, thread) for i in [0, tasks), each of `work` multiply-adds.
template <typename Fn>
void ForTasks(ThreadPool& pool, int64_t tasks, int64_t work, const Fn& fn) {
  if (tasks * work >= kMinParallelWork) return pool.ForEach(tasks, fn);
  for (int64_t i = 0; i < tasks; ++i) fn(i, 0);
}

// One product at a time.
class Products {
 public:
  // The others outlive it. Exact products take floats, whatever the weight. `observer` may be null.
  Products(const SimdOps& simd, ThreadPool& pool, const CpuWeights& weights, bool exact,
           ProductObserver* observer)
      : simd_(simd), pool_(pool), weights_(weights), exact_(exact), observer_(observer) {}

  // Allocates what the largest input takes as integers, as IntegerBytes counts it.
  absl::Status Allocate(int64_t integer_bytes);

  struct Product {
    const float* in = nullptr;  // [rows, cols of the weight]
    int64_t rows = 0;
    WeightId weight = 0;
    float* out = nullptr;  // [rows, rows of the weight]
    FetchList fetch = {};  // each task fetches its share of it
  };
  void Multiply(const Product& product);

 private:
  // The input as integers; null where it is multiplied as floats.
  QuantizedRows IntegersOf(const Product& product);

  const SimdOps& simd_;
  ThreadPool& pool_;
  const CpuWeights& weights_;
  const bool exact_;
  ProductObserver* const observer_;
  HostMemory integers_;  // of the product that runs
};

}  // namespace skein::kernels
