// A log's file, which is put by when it is large, and made anew when somebody else has done so.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace skein {

// PATH is renamed to PATH.1 when it would be too large, PATH.1 to PATH.2, and so on; the oldest one
// goes. Not thread-safe.
class LogFile {
 public:
  // Appends to the file, or makes one of mode 0640. FailedPrecondition: another process writes it.
  // Errors name the path.
  static absl::StatusOr<std::unique_ptr<LogFile>> Open(const std::string& path, int64_t max_bytes,
                                                       int files);
  ~LogFile();
  LogFile(const LogFile&) = delete;

  // Where the next `bytes` go; -1: nowhere, for now. Looks whether the path still leads to what is
  // open: logrotate(8) may have moved it, and needs to signal nobody.
  int DescriptorFor(size_t bytes);
  // Why DescriptorFor could not rotate or open the file: told once, until it can again.
  absl::Status TakeTrouble();

 private:
  LogFile(std::string path, int64_t max_bytes, int files)
      : path_(std::move(path)), max_bytes_(max_bytes), files_(files) {}

  absl::Status Reopen();
  absl::Status PutBy();

  const std::string path_;
  const int64_t max_bytes_;
  const int files_;
  int fd_ = -1;
  absl::Time next_rotation_ = absl::InfinitePast();
  bool in_trouble_ = false;
  absl::Status trouble_;
};

}  // namespace skein
