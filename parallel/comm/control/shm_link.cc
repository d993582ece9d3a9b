#include "parallel/comm/control/shm_link.h"

#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_util.h"

namespace skein::comm {
namespace {

class ShmLink final : public Link {
 public:
  ShmLink(ShmLinkEnd end, int pidfd) : end_(std::move(end)), pidfd_(pidfd) {}
  ~ShmLink() override {
    Close();
    close(pidfd_);
  }

  absl::StatusOr<size_t> TryWrite(std::string_view first, std::string_view second) override;
  absl::StatusOr<size_t> TryRead(char* bytes, size_t size) override;
  void CheckPeer() override;
  void Close() override;

 private:
  bool Gone() const { return dead_ || end_.in.state->closed.load(std::memory_order_acquire) != 0; }
  absl::Status GoneStatus() const {
    return absl::UnavailableError(absl::StrCat(
        end_.peer, dead_ ? absl::StrCat(" is gone: its process ", end_.peer_pid, " has ended")
                         : " has closed its control channel"));
  }
  // Copies to the ring from position `at` on; the caller knows that there is room.
  void Put(uint64_t at, std::string_view bytes);

  const ShmLinkEnd end_;
  const int pidfd_;
  std::atomic<bool> dead_ = false;
};

void ShmLink::Put(uint64_t at, std::string_view bytes) {
  const Ring& ring = end_.out;
  const uint64_t begin = at & (ring.capacity - 1);
  const size_t before_end = std::min<uint64_t>(bytes.size(), ring.capacity - begin);
  std::memcpy(ring.bytes + begin, bytes.data(), before_end);
  std::memcpy(ring.bytes, bytes.data() + before_end, bytes.size() - before_end);
}

absl::StatusOr<size_t> ShmLink::TryWrite(std::string_view first, std::string_view second) {
  if (Gone()) return GoneStatus();
  Ring::State& state = *end_.out.state;
  const uint64_t written = state.written.load(std::memory_order_relaxed);
  uint64_t room = end_.out.capacity - (written - state.read.load(std::memory_order_acquire));
  if (room == 0) {
    // Either the reader sees the flag after it has read, or we see that it has read.
    state.writer_waits.store(1);
    room = end_.out.capacity - (written - state.read.load());
    if (room == 0) return 0;
  }
  first = first.substr(0, room);
  second = second.substr(0, room - first.size());
  Put(written, first);
  Put(written + first.size(), second);
  state.written.store(written + first.size() + second.size(), std::memory_order_release);
  end_.peer_bell->Ring();
  return first.size() + second.size();
}

absl::StatusOr<size_t> ShmLink::TryRead(char* bytes, size_t size) {
  const bool gone = Gone();  // asked first: what it wrote before is seen below
  const Ring& ring = end_.in;
  const uint64_t read = ring.state->read.load(std::memory_order_relaxed);
  size = std::min<uint64_t>(size, ring.state->written.load(std::memory_order_acquire) - read);
  if (size == 0) {
    if (gone) return GoneStatus();
    return 0;
  }
  const uint64_t begin = read & (ring.capacity - 1);
  const size_t before_end = std::min<uint64_t>(size, ring.capacity - begin);
  std::memcpy(bytes, ring.bytes + begin, before_end);
  std::memcpy(bytes + before_end, ring.bytes, size - before_end);
  ring.state->read.store(read + size);
  if (ring.state->writer_waits.load() != 0 && ring.state->writer_waits.exchange(0) != 0) {
    end_.peer_bell->Ring();
  }
  return size;
}

void ShmLink::CheckPeer() {
  pollfd ended = {pidfd_, POLLIN, 0};
  if (poll(&ended, 1, 0) == 1) dead_ = true;
}

void ShmLink::Close() {
  end_.out.state->closed.store(1, std::memory_order_release);
  end_.peer_bell->Ring();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Link>> MakeShmLink(ShmLinkEnd end) {
  const int pidfd = static_cast<int>(syscall(SYS_pidfd_open, end.peer_pid, 0));
  if (pidfd < 0) return ErrnoStatus(errno, absl::StrCat("pidfd_open of ", end.peer));
  return std::make_unique<ShmLink>(std::move(end), pidfd);
}

}  // namespace skein::comm
