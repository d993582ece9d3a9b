// Copies between a GPU's memory and the host's.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "base/device_copies.h"

namespace skein::kernels {

// Fails without libskein_cuda.so as ListCudaDevices.
absl::StatusOr<std::unique_ptr<DeviceCopies>> MakeCudaCopies(int device);

}  // namespace skein::kernels
