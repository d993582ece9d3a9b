#include "base/log/log_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/status_macros.h"
#include "base/status_util.h"

namespace skein {
namespace {

constexpr mode_t kMode = 0640;
constexpr absl::Duration kBetweenRotations = absl::Seconds(5);  // after one that failed

}  // namespace

absl::StatusOr<std::unique_ptr<LogFile>> LogFile::Open(const std::string& path, int64_t max_bytes,
                                                       int files) {
  std::unique_ptr<LogFile> file(new LogFile(path, max_bytes, files));
  SKEIN_RETURN_IF_ERROR(file->Reopen());
  return file;
}

LogFile::~LogFile() {
  if (fd_ >= 0) close(fd_);
}

absl::Status LogFile::Reopen() {
  // Of a pipe that nobody reads, opening would wait.
  const int fd =
      open(path_.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY | O_NONBLOCK, kMode);
  if (fd < 0) return ErrnoStatus(errno, absl::StrCat("cannot write ", path_));
  struct stat opened{};
  if (fstat(fd, &opened) != 0 || !S_ISREG(opened.st_mode)) {
    close(fd);
    return absl::InvalidArgumentError(absl::StrCat(path_, " is no file"));
  }
  // Two that put it by would lose lines. File systems without locks take whoever comes.
  if (flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    close(fd);
    return absl::FailedPreconditionError(
        absl::StrCat(path_, " is written by another process; each needs a file of its own"));
  }
  if (fd_ >= 0) close(fd_);
  fd_ = fd;
  return absl::OkStatus();
}

int LogFile::DescriptorFor(size_t bytes) {
  struct stat at_path{};
  struct stat opened{};
  const bool there = stat(path_.c_str(), &at_path) == 0;
  const bool same = there && fd_ >= 0 && fstat(fd_, &opened) == 0 &&
                    at_path.st_ino == opened.st_ino && at_path.st_dev == opened.st_dev;
  // Until there is room, or a right, the old one takes the lines.
  absl::Status status;
  if (!same) {
    status = Reopen();
  } else if (at_path.st_size > 0 && at_path.st_size + static_cast<int64_t>(bytes) > max_bytes_) {
    if (absl::Now() < next_rotation_) return fd_;
    status = PutBy();
    if (status.ok()) status = Reopen();
    if (!status.ok()) next_rotation_ = absl::Now() + kBetweenRotations;
  }
  if (status.ok()) {
    in_trouble_ = false;
  } else if (!std::exchange(in_trouble_, true)) {
    trouble_ = std::move(status);
  }
  return fd_;
}

absl::Status LogFile::TakeTrouble() { return std::exchange(trouble_, absl::OkStatus()); }

absl::Status LogFile::PutBy() {
  const auto result = [&](int outcome) {
    return outcome == 0 ? absl::OkStatus()
                        : ErrnoStatus(errno, absl::StrCat("cannot rename ", path_,
                                                          ", which grows beyond its largest size"));
  };
  if (files_ == 1) return result(unlink(path_.c_str()));
  for (int number = files_ - 1; number > 1; --number) {
    std::rename(absl::StrCat(path_, ".", number - 1).c_str(),
                absl::StrCat(path_, ".", number).c_str());  // there may be none yet
  }
  return result(std::rename(path_.c_str(), absl::StrCat(path_, ".1").c_str()));
}

}  // namespace skein
