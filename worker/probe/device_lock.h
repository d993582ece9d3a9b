// Keeps who measures a device apart from who serves on it, whatever jobs they are of.
//
// What is locked is a folder of the kernel's that stands for the device: it is the host's own, all
// users see it, and nothing is made or left behind. The kernel gives the lock up when the process
// ends.
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

  // Errors of the system name the folder.
  static absl::StatusOr<DeviceLock> Open(const std::string& folder);

  // Whether nobody else serves or measures; then nobody can until Share or the end.
  bool TryOwn();
  // For who serves. Waits until nobody measures, at most so long; whether nobody does.
  bool Share(absl::Duration patience);

 private:
  explicit DeviceLock(int file) : file_(file) {}
  int file_ = -1;
};

}  // namespace skein::worker
