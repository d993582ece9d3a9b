// Memory that processes of one host share.
//
// It is a memfd: it has no name, so that nothing stays behind whatever kills the processes. Others
// open it as /proc/<pid>/fd/<fd>, which the kernel allows to processes of the same user.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <memory>
#include <string_view>

#include "absl/status/statusor.h"

namespace skein::comm {

class SharedMemory {
 public:
  // Zeroed; pages that are never used cost nothing. `cookie`, of 32 bytes at most, tells this
  // memory from others.
  static absl::StatusOr<std::unique_ptr<SharedMemory>> Create(size_t bytes,
                                                              std::string_view cookie);
  // Maps what process `pid` made, as its file `fd`. NotFound when it has another size or cookie.
  static absl::StatusOr<std::unique_ptr<SharedMemory>> Attach(pid_t pid, int fd, size_t bytes,
                                                              std::string_view cookie);
  ~SharedMemory();
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  int fd() const { return fd_; }
  // After the last Attach: nobody can find the memory any more.
  void CloseFile();

  // [bytes], where a page begins or a cache line later.
  std::byte* data() const;

 private:
  SharedMemory(int fd, size_t bytes);
  absl::Status Map();

  int fd_ = -1;
  const size_t mapped_;
  std::byte* base_ = nullptr;
};

}  // namespace skein::comm
