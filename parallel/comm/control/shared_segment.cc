#include "parallel/comm/control/shared_segment.h"

#include "base/status_macros.h"

namespace skein::comm {
namespace {

size_t BytesOf(int ranks, size_t ring_bytes) {
  return ranks * (sizeof(Bell) + 2 * (sizeof(Ring::State) + ring_bytes));
}

}  // namespace

absl::StatusOr<std::unique_ptr<SharedSegment>> SharedSegment::Create(int ranks, size_t ring_bytes,
                                                                     std::string_view cookie) {
  SKEIN_ASSIGN_OR_RETURN(auto memory, SharedMemory::Create(BytesOf(ranks, ring_bytes), cookie));
  return std::unique_ptr<SharedSegment>(new SharedSegment(std::move(memory), ranks, ring_bytes));
}

absl::StatusOr<std::unique_ptr<SharedSegment>> SharedSegment::Attach(pid_t pid, int fd, int ranks,
                                                                     size_t ring_bytes,
                                                                     std::string_view cookie) {
  SKEIN_ASSIGN_OR_RETURN(auto memory,
                         SharedMemory::Attach(pid, fd, BytesOf(ranks, ring_bytes), cookie));
  return std::unique_ptr<SharedSegment>(new SharedSegment(std::move(memory), ranks, ring_bytes));
}

Bell& SharedSegment::bell(int rank) const { return reinterpret_cast<Bell*>(memory_->data())[rank]; }

Ring SharedSegment::RingAt(int index) const {
  std::byte* const place =
      memory_->data() + ranks_ * sizeof(Bell) + index * (sizeof(Ring::State) + ring_bytes_);
  return {reinterpret_cast<Ring::State*>(place),
          reinterpret_cast<char*>(place + sizeof(Ring::State)), ring_bytes_};
}

}  // namespace skein::comm
