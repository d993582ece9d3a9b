// Sums over GPUs of one host.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "base/peer_sums.h"

namespace skein::kernels {

// Takes PeerSumBytes (kernels/ops/sizes.h) of the device, and is for up to 8 ranks. Fails without
// libskein_cuda.so as CountCudaDevices.
absl::StatusOr<std::unique_ptr<PeerSums>> MakeCudaPeerSums(int device, int rank, int ranks);

}  // namespace skein::kernels
