#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "base/device_kind.h"

namespace skein {

// "cpu" or "cuda". InvalidArgument for any other text.
absl::StatusOr<DeviceKind> ParseDeviceKind(const std::string& text);

}  // namespace skein
