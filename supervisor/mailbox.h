// Messages from other threads to one that sleeps in poll().
#pragma once

#include <sys/eventfd.h>
#include <unistd.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "base/mutex.h"

namespace skein::supervisor {

// Any thread may call it.
template <typename Letter>
class Mailbox {
 public:
  Mailbox() : fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}
  ~Mailbox() { close(fd_); }
  Mailbox(const Mailbox&) = delete;

  int fd() const { return fd_; }  // readable when there may be letters

  void Post(Letter letter) {
    MutexLock lock(&mutex_);
    letters_.push_back(std::move(letter));
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = write(fd_, &one, sizeof(one));
  }

  std::vector<Letter> TakeAll() {
    MutexLock lock(&mutex_);
    uint64_t count = 0;
    [[maybe_unused]] const ssize_t got = read(fd_, &count, sizeof(count));
    return std::exchange(letters_, {});
  }

 private:
  const int fd_;
  Mutex mutex_;
  std::vector<Letter> letters_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace skein::supervisor
