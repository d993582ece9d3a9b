// The CPU back end: SIMD by Highway, chosen at run time, and a pool of threads.
//
// A row's result has the same bits whatever rows, pages and chunks surround it, whatever the number
// of threads, on AVX2 and on AVX-512: every sum has one order, fixed by the shapes alone.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "kernels/ops/backend.h"

namespace skein::kernels {

struct CpuOptions {
  int threads = 1;  // the caller of Run included; 1 starts none
  // Tests: the instruction sets that may be used, a mask of HWY_* targets; 0 allows all. Not while
  // another thread makes a back end.
  int64_t simd_targets = 0;
};

// The threads belong to the back end, which outlives what it made; they sleep between runs. One
// executable of a back end runs at a time. InvalidArgument for fewer than one thread; Unimplemented
// on a CPU without fused multiply-add (before AVX2); what the system said when a thread cannot be
// started.
absl::StatusOr<std::unique_ptr<Backend>> MakeCpuBackend(const CpuOptions& options);

}  // namespace skein::kernels
