// Times work of a device as steps do theirs: captured once and replayed.
#pragma once

#include <cstdint>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/stream.h"

namespace skein {

// One thread at a time.
class DeviceTimer {
 public:
  virtual ~DeviceTimer() = default;

  // Memory of the device for what is timed, all zeros at first; the same one until more is asked
  // for. ResourceExhausted where there is none.
  virtual absl::StatusOr<void*> Memory(int64_t bytes) = 0;
  virtual Stream stream() const = 0;
  // Captures what `give` gives stream(), in the place of what was captured before.
  virtual absl::Status Capture(absl::FunctionRef<absl::Status()> give) = 0;
  // Replays it and returns its seconds by the device's clock. `between` is called between looks at
  // whether it is over; its error ends the wait, behind which nothing more can be timed.
  virtual absl::StatusOr<double> Replay(absl::FunctionRef<absl::Status()> between) = 0;
};

}  // namespace skein
