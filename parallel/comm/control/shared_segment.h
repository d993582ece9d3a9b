// The memory that the leader of a group shares with the followers of its host.
//
//   SegmentHeader | Bell of each rank, 64 bytes apart | per rank: ring to it, ring from it
//
// It is a memfd: it has no name, so that nothing stays behind whatever kills the processes. Others
// open it as /proc/<pid>/fd/<fd>, which the kernel allows to processes of the same user.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "parallel/comm/control/bell.h"

namespace skein::comm {

// Bytes from one writer to one reader. Positions only grow; `capacity` is a power of two.
struct Ring {
  struct State {
    alignas(64) std::atomic<uint64_t> written;
    alignas(64) std::atomic<uint64_t> read;
    alignas(64) std::atomic<uint32_t> writer_waits;
    std::atomic<uint32_t> closed;  // by the writer
  };
  State* state = nullptr;
  char* bytes = nullptr;  // [capacity]
  uint64_t capacity = 0;
};

class SharedSegment {
 public:
  // Memory for `ranks` ranks, with rings of `ring_bytes` (a power of two); pages that are never
  // used cost nothing. `cookie` tells this segment from others.
  static absl::StatusOr<std::unique_ptr<SharedSegment>> Create(int ranks, size_t ring_bytes,
                                                               std::string_view cookie);
  // Maps the segment that process `pid` made, as its file `fd`. NotFound when it has another
  // cookie.
  static absl::StatusOr<std::unique_ptr<SharedSegment>> Attach(pid_t pid, int fd, int ranks,
                                                               size_t ring_bytes,
                                                               std::string_view cookie);
  ~SharedSegment();
  SharedSegment(const SharedSegment&) = delete;
  SharedSegment& operator=(const SharedSegment&) = delete;

  int fd() const { return fd_; }
  // After the last Attach: nobody can find the memory any more.
  void CloseFile();

  Bell& bell(int rank) const;
  Ring ring_to(int rank) const { return RingAt(2 * rank); }
  Ring ring_from(int rank) const { return RingAt(2 * rank + 1); }

 private:
  SharedSegment(int fd, int ranks, size_t ring_bytes);
  absl::Status Map();
  Ring RingAt(int index) const;
  size_t bytes() const;

  int fd_ = -1;
  const int ranks_;
  const size_t ring_bytes_;
  char* base_ = nullptr;
};

}  // namespace skein::comm
