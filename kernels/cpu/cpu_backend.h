// The CPU back end uses SIMD by Highway, chosen at run time, and a pool of threads.
//
// A row's result has the same bits whatever rows, pages and chunks surround it, whatever the number
// of threads, on AVX2 and on AVX-512: every sum has one order, fixed by the shapes alone.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "base/thread_pool.h"
#include "kernels/ops/backend.h"

namespace skein::kernels {

struct CpuOptions {
  int threads = 1;               // including the one that calls Enqueue; 1 starts none
  ThreadPool::Cores cores = {};  // of the threads
  // Restricts, for tests, the instruction sets that may be used to a mask of HWY_* targets; 0
  // allows all. Set it only while no other thread makes a back end.
  int64_t simd_targets = 0;
};

// The threads belong to the back end, which outlives what it made; they sleep between runs. One
// executable of a back end runs at a time. InvalidArgument for fewer than one thread; Unimplemented
// on a CPU without fused multiply-add (before AVX2); the system's own error when a thread cannot be
// started.
absl::StatusOr<std::unique_ptr<Backend>> MakeCpuBackend(const CpuOptions& options);

}  // namespace skein::kernels
