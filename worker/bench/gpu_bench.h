// What one GPU reaches on one model, held against what its memory and its matrix units give.
#pragma once

#include "absl/status/status.h"
#include "worker/bench/bench.h"
#include "worker/device.h"

namespace skein::worker {

// As RunBench. Decode steps follow each other as in serving: the next one is queued while one runs.
absl::Status RunGpuBench(const BenchOptions& options, const RankDevice& device);

}  // namespace skein::worker
