// Copies between a device's memory and the host's, for transports that reach the host's alone.
#pragma once

#include <cstddef>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/stream.h"
#include "base/view.h"

namespace skein {

// One thread at a time.
class DeviceCopies {
 public:
  virtual ~DeviceCopies() = default;

  // Memory of the host that the device copies from and to at full speed; the same one until more is
  // asked for. ResourceExhausted where there is none.
  virtual absl::StatusOr<absl::Span<std::byte>> Buffer(int64_t bytes) = 0;
  // Is called between looks at what is waited for. Its error ends the wait.
  using KeepWaiting = absl::FunctionRef<absl::Status()>;
  // Both wait for what `stream` was given so far, and for the copy. Errors are also those of the
  // stream's kernels. After one the copy may still be under way.
  virtual absl::Status ToHost(ConstView from, std::byte* to, Stream stream,
                              KeepWaiting keep_waiting) = 0;
  virtual absl::Status ToDevice(const std::byte* from, View to, Stream stream,
                                KeepWaiting keep_waiting) = 0;
};

}  // namespace skein
