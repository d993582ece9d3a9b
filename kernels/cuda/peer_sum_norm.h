// A small sum over the devices of one host, the residual sum and RMSNorm, in one kernel.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "base/stream.h"
#include "kernels/cuda/peer_memory.h"
#include "kernels/cuda/rms_norm.h"

namespace skein::kernels::cuda {

// delta = the sum of all ranks' delta, and then `norm` with it: the bits of PeerSum and RmsNorm,
// one after the other. Beyond memory.one_shot_bytes, and with more than 2 ranks, in two shots, in
// which a rank sums every so many-th row and sends that on.
struct PeerSumNorm {
  PeerMemory memory;
  // delta_stride is cols. `out` may be `delta`, where no sum is left then.
  RmsNorm norm;
  void* delta = nullptr;  // norm.delta
};

// Whether there is a kernel for it: BF16 or F16, 2, 4 or 8 ranks, rows to kMostNormCols, and
// kMostPeerSumBytes at most.
bool HasKernel(const PeerSumNorm& op);

// Queues it, in the place of a sum. InvalidArgument for what breaks the above and RmsNorm's.
absl::Status Enqueue(const PeerSumNorm& op, Stream stream);

}  // namespace skein::kernels::cuda
