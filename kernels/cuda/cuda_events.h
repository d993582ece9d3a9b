// Events of a GPU's streams.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "base/device_events.h"

namespace skein::kernels {

// Fails without libskein_cuda.so as CountCudaDevices.
absl::StatusOr<std::unique_ptr<DeviceEvents>> MakeCudaEvents(int device);

}  // namespace skein::kernels
