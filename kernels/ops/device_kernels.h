// What a kind of device has no kernels for, so that plans say so before anything is loaded.
#pragma once

#include "absl/status/status.h"
#include "base/device_kind.h"
#include "kernels/ops/program.h"

namespace skein::kernels {

// Unimplemented names what of a Program the device cannot compute yet: a matrix of a type by which
// it does not multiply, or an operation.
absl::Status CheckDeviceKernels(DeviceKind kind, const Program& program);

}  // namespace skein::kernels
