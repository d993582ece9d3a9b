// The memory that the leader of a group shares with the followers of its host.
//
//   Bell of each rank | per rank: ring to it, ring from it
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <utility>

#include "absl/status/statusor.h"
#include "parallel/comm/shared_memory/bell.h"
#include "parallel/comm/shared_memory/shared_memory.h"

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

  int fd() const { return memory_->fd(); }
  // After the last Attach: nobody can find the memory any more.
  void CloseFile() { memory_->CloseFile(); }

  Bell& bell(int rank) const;
  Ring ring_to(int rank) const { return RingAt(2 * rank); }
  Ring ring_from(int rank) const { return RingAt(2 * rank + 1); }

 private:
  SharedSegment(std::unique_ptr<SharedMemory> memory, int ranks, size_t ring_bytes)
      : memory_(std::move(memory)), ranks_(ranks), ring_bytes_(ring_bytes) {}
  Ring RingAt(int index) const;

  std::unique_ptr<SharedMemory> memory_;
  const int ranks_;
  const size_t ring_bytes_;
};

}  // namespace skein::comm
