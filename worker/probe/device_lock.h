// Keeps who measures a device apart from who serves on it, whatever jobs they are of.
//
// A lock is a file of the folder in which measurements are kept, named by the device; the kernel
// gives it up when the process ends.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace skein::worker {

class DeviceLock {
 public:
  DeviceLock() = default;  // of nothing
  ~DeviceLock();
  DeviceLock(DeviceLock&& other) noexcept;
  DeviceLock& operator=(DeviceLock&& other) noexcept;

  // Opens the device's file, which is made with its folder where it is not there. PermissionDenied
  // and other errors of the system name the path.
  static absl::StatusOr<DeviceLock> Open(const std::string& folder, const std::string& device);

  // Whether nobody else serves or measures; then nobody can until Share or the end.
  bool TryOwn();
  // For who serves. Waits until nobody measures, at most so long; whether nobody does.
  bool Share(absl::Duration patience);

 private:
  explicit DeviceLock(int file) : file_(file) {}
  int file_ = -1;
};

}  // namespace skein::worker
