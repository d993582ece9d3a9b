// Times work of a GPU by its own clock.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "base/device_timer.h"

namespace skein::kernels {

// Fails without libskein_cuda.so as ListCudaDevices.
absl::StatusOr<std::unique_ptr<DeviceTimer>> MakeCudaTimer(int device);

}  // namespace skein::kernels
