// Measures the most that the machine can do. Decoding and prefill are held against it.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "base/thread_pool.h"
#include "kernels/cpu/simd_ops.h"
#include "kernels/host/memory.h"

namespace skein::kernels {

// Threads read its buffer by wide loads. The rate of memory changes from one second to the next
// where machines share it: read right before and after the work that is held against it.
class ReadProbe {
 public:
  // Allocates `bytes`, rounded down to MiB (choose more than caches hold). ResourceExhausted when
  // they cannot be had.
  static absl::StatusOr<ReadProbe> Create(int threads, int64_t bytes,
                                          const ThreadPool::Cores& cores = {});

  int64_t bytes() const { return memory_.bytes(); }

  int threads() const { return pool_->threads(); }

  // Reads the buffer once. Returns bytes per second, all threads together.
  double Pass() { return Pass(bytes()); }
  // Of it `bytes` behind the first `begin`, both rounded down to MiB, as far as it goes; 0 where
  // that is less than a MiB.
  double Pass(int64_t bytes, int64_t begin = 0);

 private:
  ReadProbe(const SimdOps* simd, std::unique_ptr<ThreadPool> pool, HostMemory memory);

  const SimdOps* simd_;
  std::unique_ptr<ThreadPool> pool_;
  HostMemory memory_;
};

// Operations per second of `threads` threads that multiply and add in registers only, all together:
// the best of ten tries, 0.2 s in all. Of floats, or of bytes as products of quantised weights
// multiply them.
absl::StatusOr<double> MeasureArithmetic(int threads, const ThreadPool::Cores& cores = {});
absl::StatusOr<double> MeasureByteArithmetic(int threads, const ThreadPool::Cores& cores = {});

}  // namespace skein::kernels
