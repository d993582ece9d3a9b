// Measures what a rank's device does in a second, by the very code that serves: steps of small
// models with random weights.
//
// Two models of as many weights in unlike layers tell what layers cost as such and, on cores, what
// these pass between products; models of unlike depths, on cores of layers that hold next to
// nothing, what a step costs. Steps of models of other sizes, with this taken off, tell how fast
// products are, whether or not caches hold their weights.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "topology/rates.h"
#include "worker/bench/bench_device.h"
#include "worker/probe/probe_hooks.h"

namespace skein::worker {

struct LayerProbeOptions {
  int64_t cache_bytes = 0;  // of the last level, this rank's part; of CPUs
  ProbeHooks hooks;
};

// DeviceRates without reads and attention: overheads and products. On CPUs rates are of one core;
// `device.threads` cores work together. Takes up to 0.6 GiB of memory, or 4.5 GiB of a GPU's, and 2
// s. Errors are those of the back end.
absl::StatusOr<topology::DeviceRates> ProbeLayers(BenchDevice& device,
                                                  const LayerProbeOptions& options);

}  // namespace skein::worker
