// Sums over GPUs of one host.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "base/peer_sums.h"

namespace skein::kernels {

// Takes 512 KiB of the device for each of `ranks`, up to 8. Fails without libskein_cuda.so as
// CountCudaDevices.
absl::StatusOr<std::unique_ptr<PeerSums>> MakeCudaPeerSums(int device, int rank, int ranks);

}  // namespace skein::kernels
