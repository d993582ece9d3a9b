#include "coordinator/rpc/listener.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/status_macros.h"
#include "base/status_util.h"
#include "spdlog/spdlog.h"

namespace skein::coordinator {
namespace {

constexpr int kBacklog = 1024;
constexpr int kReservedDescriptors = 64;
// While the machine itself has no descriptor or memory left, a look now and then is enough.
constexpr int kPauseMs = 100;
constexpr absl::Duration kBetweenLines = absl::Seconds(10);

using AddressList = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

absl::StatusOr<AddressList> Resolve(const HostPort& address) {
  std::string host = address.host;
  if (host.size() > 2 && host.front() == '[') host = host.substr(1, host.size() - 2);
  const addrinfo hints = {.ai_flags = AI_PASSIVE, .ai_socktype = SOCK_STREAM};
  addrinfo* found = nullptr;
  const int error = getaddrinfo(host.c_str(), std::to_string(address.port).c_str(), &hints, &found);
  if (error != 0) return absl::UnavailableError(gai_strerror(error));
  return AddressList(found, &freeaddrinfo);
}

void SetPort(sockaddr_storage& address, int port) {
  if (address.ss_family == AF_INET) {
    reinterpret_cast<sockaddr_in&>(address).sin_port = htons(static_cast<uint16_t>(port));
  } else if (address.ss_family == AF_INET6) {
    reinterpret_cast<sockaddr_in6&>(address).sin6_port = htons(static_cast<uint16_t>(port));
  }
}

int PortOf(int socket) {
  sockaddr_storage address = {};
  socklen_t size = sizeof(address);
  if (getsockname(socket, reinterpret_cast<sockaddr*>(&address), &size) != 0) return 0;
  const in_port_t port = address.ss_family == AF_INET
                             ? reinterpret_cast<const sockaddr_in&>(address).sin_port
                             : reinterpret_cast<const sockaddr_in6&>(address).sin6_port;
  return ntohs(port);
}

// Returns a socket that listens on one of a name's addresses; -1 and errno.
int ListenOn(const addrinfo& entry, int port) {
  const int fd = socket(entry.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return -1;
  // Connections of an earlier server that linger take no port.
  const int on = 1;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  // Connections inherit it: a token's small write does not wait until the one before was taken.
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  // Likewise: a client that takes nothing for so long, or whose host is gone, holds no buffers.
  const int patience_ms = 60'000;
  setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &patience_ms, sizeof(patience_ms));
  sockaddr_storage address = {};
  std::memcpy(&address, entry.ai_addr, entry.ai_addrlen);
  SetPort(address, port);
  if (bind(fd, reinterpret_cast<const sockaddr*>(&address), entry.ai_addrlen) == 0 &&
      listen(fd, kBacklog) == 0) {
    return fd;
  }
  const int error = errno;
  close(fd);
  errno = error;
  return -1;
}

std::string WhyNot(int error) {
  if (error != EADDRINUSE) return strerror(error);
  return "the port is in use, maybe by another coordinator; choose one with --listen=HOST:PORT "
         "(port 0 takes a free one)";
}

int OpenReserve() { return open("/dev/null", O_RDONLY | O_CLOEXEC); }

}  // namespace

absl::Status CheckListenAddress(const HostPort& address) {
  return Listener::Open(address).status();
}

int MaxDescriptors(int64_t limit) {
  const int64_t most = std::min<int64_t>(limit, 1 << 20);
  return static_cast<int>(std::max(most - kReservedDescriptors, most / 2));
}

absl::StatusOr<std::unique_ptr<Listener>> Listener::Open(const HostPort& address) {
  const std::string what = absl::StrCat("--listen: cannot listen on ", address.ToString(), ": ");
  const absl::StatusOr<AddressList> found = Resolve(address);
  if (!found.ok()) return absl::UnavailableError(what + std::string(found.status().message()));
  // One of a name's addresses is enough; the others are taken where they can be.
  HostPort taken = address;
  std::vector<int> sockets;
  int error = 0;
  for (const addrinfo* entry = found->get(); entry != nullptr; entry = entry->ai_next) {
    const int fd = ListenOn(*entry, taken.port);
    if (fd < 0) {
      error = errno;
      continue;
    }
    sockets.push_back(fd);
    if (taken.port == 0) taken.port = PortOf(fd);
  }
  if (sockets.empty()) return absl::UnavailableError(what + WhyNot(error));
  const int wake = eventfd(0, EFD_CLOEXEC);
  if (wake < 0) {
    error = errno;
    for (const int socket : sockets) close(socket);
    return ErrnoStatus(error, what + "eventfd");
  }
  return std::unique_ptr<Listener>(new Listener(std::move(taken), std::move(sockets), wake));
}

Listener::Listener(HostPort address, std::vector<int> sockets, int wake)
    : address_(std::move(address)), sockets_(std::move(sockets)), wake_(wake) {}

Listener::~Listener() {
  Stop();
  close(wake_);
}

void Listener::Start(int max_descriptors, OnConnection on_connection) {
  max_descriptors_ = max_descriptors;
  on_connection_ = std::move(on_connection);
  reserve_ = OpenReserve();
  thread_ = std::thread([this] { AcceptLoop(); });
}

void Listener::Stop() {
  if (thread_.joinable()) {
    const uint64_t one = 1;
    (void)!write(wake_, &one, sizeof(one));
    thread_.join();
  }
  for (const int socket : std::exchange(sockets_, {})) close(socket);
  if (reserve_ >= 0) close(std::exchange(reserve_, -1));
}

void Listener::AcceptLoop() {
  std::vector<pollfd> waits = {{.fd = wake_, .events = POLLIN}};
  for (const int socket : sockets_) waits.push_back({.fd = socket, .events = POLLIN});
  while (true) {
    if (poll(waits.data(), waits.size(), -1) < 0 && errno != EINTR) {
      spdlog::error("the listener's poll failed: {}", strerror(errno));
      absl::SleepFor(absl::Milliseconds(kPauseMs));
    }
    if (waits[0].revents != 0) return;
    for (size_t i = 1; i < waits.size(); ++i) {
      if (waits[i].revents != 0) AcceptFrom(waits[i].fd);
    }
  }
}

void Listener::AcceptFrom(int socket) {
  while (true) {
    const int fd = accept4(socket, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd >= 0) {
      // The system gives the lowest number that is free.
      if (fd < max_descriptors_) {
        on_connection_(fd);
      } else {
        close(fd);
        Refuse();
      }
      continue;
    }
    if (errno == EINTR || errno == ECONNABORTED) continue;
    if ((errno == EMFILE || errno == ENFILE) && reserve_ >= 0) {
      // Nobody is to wait for a connection that does not come.
      close(std::exchange(reserve_, -1));
      const int stranger = accept4(socket, nullptr, nullptr, SOCK_CLOEXEC);
      if (stranger >= 0) close(stranger);
      reserve_ = OpenReserve();
      Refuse();
      if (reserve_ >= 0) continue;
    }
    if (errno != EAGAIN && errno != EWOULDBLOCK) {
      absl::SleepFor(absl::Milliseconds(kPauseMs));
      if (reserve_ < 0) reserve_ = OpenReserve();
    }
    return;
  }
}

void Listener::Refuse() {
  ++refused_;
  const absl::Time now = absl::Now();
  if (now < next_line_) return;
  next_line_ = now + kBetweenLines;
  spdlog::warn(
      "{} connection(s) refused: {} file descriptors are in use; close idle connections, "
      "or raise the limit (ulimit -n) and start again",
      std::exchange(refused_, 0), max_descriptors_);
}

}  // namespace skein::coordinator
