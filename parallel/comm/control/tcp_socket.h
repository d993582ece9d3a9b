// TCP connections between two ranks, and how they find each other.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace skein::comm {

// A file descriptor with one owner.
class OwnedFd {
 public:
  explicit OwnedFd(int fd = -1) : fd_(fd) {}
  OwnedFd(OwnedFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  OwnedFd& operator=(OwnedFd&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~OwnedFd();
  int get() const { return fd_; }

 private:
  int fd_;
};

// A socket that listens on every interface, at a port that the kernel chose.
struct Listener {
  OwnedFd socket;
  int port = 0;
};
absl::StatusOr<Listener> Listen(int backlog);

// The numeric addresses of this host. Those that other hosts may reach come first, loopback last.
absl::StatusOr<std::vector<std::string>> HostAddresses();

// Connects to the first of `addresses` that answers, and says `hello`. Unavailable when none does.
absl::StatusOr<OwnedFd> Connect(const std::vector<std::string>& addresses, int port,
                                std::string_view hello, absl::Time deadline);

// Accepts the next connection, and reads the `hello_bytes` bytes that its other end says first.
// Drops connections that say less.
struct Accepted {
  OwnedFd socket;
  std::string hello;
};
absl::StatusOr<Accepted> Accept(const Listener& listener, size_t hello_bytes, absl::Time deadline);

}  // namespace skein::comm
