#include "worker/probe/device_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "absl/time/clock.h"
#include "base/status_util.h"

namespace skein::worker {

DeviceLock::~DeviceLock() {
  if (file_ >= 0) close(file_);
}

DeviceLock::DeviceLock(DeviceLock&& other) noexcept : file_(std::exchange(other.file_, -1)) {}

DeviceLock& DeviceLock::operator=(DeviceLock&& other) noexcept {
  std::swap(file_, other.file_);
  return *this;
}

absl::StatusOr<DeviceLock> DeviceLock::Open(const std::string& folder) {
  const int file = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (file < 0) return ErrnoStatus(errno, folder);
  return DeviceLock(file);
}

bool DeviceLock::TryOwn() { return file_ >= 0 && flock(file_, LOCK_EX | LOCK_NB) == 0; }

bool DeviceLock::Share(absl::Duration patience) {
  if (file_ < 0) return false;
  constexpr absl::Duration kBetween = absl::Milliseconds(50);
  const absl::Time deadline = absl::Now() + patience;
  while (flock(file_, LOCK_SH | LOCK_NB) != 0) {
    if (absl::Now() + kBetween > deadline) return false;
    absl::SleepFor(kBetween);
  }
  return true;
}

}  // namespace skein::worker
