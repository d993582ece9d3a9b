// TCP connections between two ranks, encrypted, and how they find each other.
#pragma once

#include <sys/socket.h>

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/port_range.h"
#include "base/tls/shared_key_tls.h"

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

// A socket that listens on every interface: at the first port of `ports` that nobody has, or at one
// that the kernel chose. Unavailable where all of them are taken.
struct Listener {
  OwnedFd socket;
  int port = 0;
};
absl::StatusOr<Listener> Listen(int backlog, const std::optional<PortRange>& ports = std::nullopt);

// The numeric addresses of this host. Those that other hosts may reach come first, loopback last.
absl::StatusOr<std::vector<std::string>> HostAddresses();

// "10.0.0.7:4711"
std::string AddressText(const sockaddr_storage& address, socklen_t size);

// The other end has shown, or is about to show, that it knows the key of the channel.
struct SecureSocket {
  OwnedFd socket;  // does not block
  std::unique_ptr<SharedKeyTls> tls;
};
// Who connects and shows nothing is let go of after so long.
inline constexpr absl::Duration kHandshakeTimeout = absl::Seconds(10);

// Takes what has come of the handshake and sends what is to be said; true once it is over.
// Unavailable: the connection broke; PermissionDenied: the other end does not know the key.
absl::StatusOr<bool> AdvanceHandshake(SecureSocket& connection);

// Connects, as `identity`, to the first of `addresses` where somebody answers who knows `key`.
// Unavailable when nobody does: what was tried, and what came of it.
absl::StatusOr<SecureSocket> Connect(const std::vector<std::string>& addresses, int port,
                                     std::string_view key, std::string_view identity,
                                     absl::Time deadline);

}  // namespace skein::comm
