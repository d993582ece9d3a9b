// Points in what a device's streams were given, for who gives them work without knowing the
// device's kind.
#pragma once

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/stream.h"

namespace skein {

// One thread at a time.
class DeviceEvents {
 public:
  virtual ~DeviceEvents() = default;

  // Makes it the device that libraries use on the calling thread.
  virtual absl::Status Select() = 0;
  // Returns a point behind what `stream` was given so far.
  virtual absl::StatusOr<int> Record(Stream stream) = 0;
  // Returns whether the device has come to a point, without waiting; once it has, the point is
  // gone. Errors are also those of kernels.
  virtual absl::StatusOr<bool> Done(int event) = 0;
};

}  // namespace skein
