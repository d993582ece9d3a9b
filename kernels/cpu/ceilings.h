// What the machine can do at most: what decoding and prefill are held against.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "kernels/cpu/simd_ops.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/host/memory.h"

namespace skein::kernels {

// A buffer that threads read by wide loads. What memory gives changes from one second to the next
// where machines share it: read right before and after the work that is held against it.
class ReadProbe {
 public:
  // Of `bytes`, rounded down to MiB (choose more than caches hold). ResourceExhausted when they
  // cannot be had.
  static absl::StatusOr<ReadProbe> Create(int threads, int64_t bytes);

  int64_t bytes() const { return memory_.bytes(); }

  // Bytes per second of one pass over the buffer, all threads together.
  double Pass();

 private:
  ReadProbe(const SimdOps* simd, std::unique_ptr<ThreadPool> pool, HostMemory memory);

  const SimdOps* simd_;
  std::unique_ptr<ThreadPool> pool_;
  HostMemory memory_;
};

// Float operations per second of `threads` threads that multiply and add in registers only, all
// together: the best of a few tries, half a second in all.
absl::StatusOr<double> MeasureArithmetic(int threads);

}  // namespace skein::kernels
