// The ceiling that decoding is held against.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace skein::kernels {

// Bytes per second at which `threads` threads together read a buffer of `bytes` (choose > 1 GiB,
// more than caches hold) by wide loads: the median of the passes that fit into `duration`, three at
// least. ResourceExhausted when the buffer cannot be had.
absl::StatusOr<double> MeasureReadBandwidth(int threads, int64_t bytes, absl::Duration duration);

}  // namespace skein::kernels
