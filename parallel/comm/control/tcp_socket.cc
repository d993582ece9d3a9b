#include "parallel/comm/control/tcp_socket.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <random>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/status_macros.h"
#include "base/status_util.h"

namespace skein::comm {
namespace {

// A host that does not answer at one of its addresses costs no more than this.
constexpr absl::Duration kConnectTimeout = absl::Seconds(2);
// Of attempts at a range of ports, and how far from each other they are at most.
constexpr int kRounds = 6;
constexpr absl::Duration kApart = absl::Milliseconds(20);

// OK when `fd` is ready for `events`, DeadlineExceeded later.
absl::Status Await(int fd, short events, absl::Time deadline) {
  while (true) {
    const absl::Duration left = std::max(deadline - absl::Now(), absl::ZeroDuration());
    const int64_t milliseconds =
        std::min<int64_t>(absl::ToInt64Milliseconds(left + absl::Microseconds(999)), 1 << 30);
    pollfd waited = {fd, events, 0};
    const int ready = poll(&waited, 1, static_cast<int>(milliseconds));
    if (ready > 0) return absl::OkStatus();
    if (ready < 0 && errno != EINTR) return ErrnoStatus(errno, "poll");
    if (absl::Now() >= deadline) return absl::DeadlineExceededError("no answer in time");
  }
}

absl::StatusOr<OwnedFd> ConnectTo(const std::string& address, int port, absl::Time deadline) {
  addrinfo hints = {};
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (const int error = getaddrinfo(address.c_str(), std::to_string(port).c_str(), &hints, &found);
      error != 0) {
    return absl::InvalidArgumentError(gai_strerror(error));
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> target(found, &freeaddrinfo);
  OwnedFd socket(::socket(target->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (socket.get() < 0) return ErrnoStatus(errno, "socket");
  if (connect(socket.get(), target->ai_addr, target->ai_addrlen) != 0) {
    if (errno != EINPROGRESS) return ErrnoStatus(errno, "connect");
    SKEIN_RETURN_IF_ERROR(Await(socket.get(), POLLOUT, deadline));
    int error = 0;
    socklen_t size = sizeof(error);
    getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &size);
    if (error != 0) return ErrnoStatus(error, "connect");
  }
  return socket;
}

// Until the other end has shown that it knows the key.
absl::Status Handshake(SecureSocket& connection, absl::Time deadline) {
  while (true) {
    SKEIN_ASSIGN_OR_RETURN(const bool over, AdvanceHandshake(connection));
    if (over) return absl::OkStatus();
    SKEIN_RETURN_IF_ERROR(Await(connection.socket.get(), POLLIN, deadline));
  }
}

// At port 0 the kernel chooses one. AlreadyExists where somebody has the port.
absl::StatusOr<Listener> ListenAt(int port, int backlog) {
  // One socket for IPv6 and IPv4; a kernel without IPv6 has IPv4 only.
  sockaddr_in6 any6 = {};
  any6.sin6_family = AF_INET6;
  any6.sin6_port = htons(static_cast<uint16_t>(port));
  sockaddr_in any4 = {};
  any4.sin_family = AF_INET;
  any4.sin_port = any6.sin6_port;
  const auto fail = [](const char* what) {
    const int error = errno;
    if (error == EADDRINUSE) return absl::AlreadyExistsError("somebody has the port");
    return ErrnoStatus(error, what);
  };
  const int on = 1, off = 0;
  const auto open = [&](int family) {
    OwnedFd made(socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    // Connections that are over keep a port from others for a minute.
    if (made.get() >= 0) setsockopt(made.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    return made;
  };
  Listener listener;
  listener.socket = open(AF_INET6);
  const bool six = listener.socket.get() >= 0 && setsockopt(listener.socket.get(), IPPROTO_IPV6,
                                                            IPV6_V6ONLY, &off, sizeof(off)) == 0;
  if (!six || bind(listener.socket.get(), reinterpret_cast<sockaddr*>(&any6), sizeof(any6)) != 0) {
    if (six && errno == EADDRINUSE) return fail("bind");
    listener.socket = open(AF_INET);
    if (listener.socket.get() < 0) return fail("socket");
    if (bind(listener.socket.get(), reinterpret_cast<sockaddr*>(&any4), sizeof(any4)) != 0) {
      return fail("bind");
    }
  }
  if (listen(listener.socket.get(), backlog) != 0) return fail("listen");
  sockaddr_in6 bound = {};  // the port is at the same place in both families
  socklen_t size = sizeof(bound);
  if (getsockname(listener.socket.get(), reinterpret_cast<sockaddr*>(&bound), &size) != 0) {
    return fail("getsockname");
  }
  listener.port = ntohs(bound.sin6_port);
  return listener;
}

}  // namespace

OwnedFd::~OwnedFd() {
  if (fd_ >= 0) close(fd_);
}

absl::StatusOr<Listener> Listen(int backlog, const std::optional<PortRange>& ports) {
  if (!ports) return ListenAt(0, backlog);
  std::minstd_rand random(std::random_device{}());
  for (int round = 0; round < kRounds; ++round) {
    for (int port = ports->first; port <= ports->last; ++port) {
      absl::StatusOr<Listener> listener = ListenAt(port, backlog);
      if (!absl::IsAlreadyExists(listener.status())) return listener;
    }
    // Two who bind a port at once both can, and then one of them, or neither, can listen there.
    absl::SleepFor(kApart * std::uniform_real_distribution<double>()(random));
  }
  return absl::UnavailableError(absl::StrCat("all ports from ", ports->first, " to ", ports->last,
                                             " are taken by others: give more of them"));
}

absl::StatusOr<std::vector<std::string>> HostAddresses() {
  ifaddrs* first = nullptr;
  if (getifaddrs(&first) != 0) return ErrnoStatus(errno, "getifaddrs");
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> interfaces(first, &freeifaddrs);
  std::vector<std::string> addresses, loopback;
  for (const ifaddrs* i = first; i != nullptr; i = i->ifa_next) {
    if (i->ifa_addr == nullptr || (i->ifa_flags & IFF_UP) == 0) continue;
    const int family = i->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    if (family == AF_INET6 &&
        IN6_IS_ADDR_LINKLOCAL(&reinterpret_cast<sockaddr_in6*>(i->ifa_addr)->sin6_addr)) {
      continue;  // means nothing without an interface of the other host's
    }
    char text[NI_MAXHOST] = {};
    const socklen_t size = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
    if (getnameinfo(i->ifa_addr, size, text, sizeof(text), nullptr, 0, NI_NUMERICHOST) != 0) {
      continue;
    }
    ((i->ifa_flags & IFF_LOOPBACK) != 0 ? loopback : addresses).push_back(text);
  }
  addresses.insert(addresses.end(), loopback.begin(), loopback.end());
  return addresses;
}

std::string AddressText(const sockaddr_storage& address, socklen_t size) {
  char host[NI_MAXHOST] = {};
  char port[NI_MAXSERV] = {};
  if (getnameinfo(reinterpret_cast<const sockaddr*>(&address), size, host, sizeof(host), port,
                  sizeof(port), NI_NUMERICHOST | NI_NUMERICSERV) != 0) {
    return "an unknown address";
  }
  return absl::StrCat(host, ":", port);
}

absl::StatusOr<bool> AdvanceHandshake(SecureSocket& connection) {
  char bytes[16 << 10];
  const ssize_t got = recv(connection.socket.get(), bytes, sizeof(bytes), 0);
  if (got == 0) return absl::UnavailableError("it closed before it showed who it is");
  if (got < 0 && errno != EAGAIN && errno != EINTR) return ErrnoStatus(errno, "recv");
  if (got > 0) connection.tls->Feed({bytes, static_cast<size_t>(got)});
  absl::StatusOr<bool> over = connection.tls->Handshake();
  // Where it failed, too, for the other end to know. It is less than any socket's buffer takes.
  const std::string out = connection.tls->TakeOutgoing();
  const ssize_t sent = send(connection.socket.get(), out.data(), out.size(), MSG_NOSIGNAL);
  if (over.ok() && sent < static_cast<ssize_t>(out.size())) return ErrnoStatus(errno, "send");
  return over;
}

absl::StatusOr<SecureSocket> Connect(const std::vector<std::string>& addresses, int port,
                                     std::string_view key, std::string_view identity,
                                     absl::Time deadline) {
  std::string tried;
  for (const std::string& address : addresses) {
    absl::StatusOr<OwnedFd> socket =
        ConnectTo(address, port, std::min(deadline, absl::Now() + kConnectTimeout));
    absl::Status status = socket.status();
    if (status.ok()) {
      SecureSocket connection = {.socket = *std::move(socket)};
      SKEIN_ASSIGN_OR_RETURN(connection.tls, SharedKeyTls::Client(key, identity));
      status = Handshake(connection, std::min(deadline, absl::Now() + kHandshakeTimeout));
      if (status.ok()) return connection;
    }
    absl::StrAppend(&tried, tried.empty() ? "" : "; ", address, ": ", status.message());
  }
  return absl::UnavailableError(absl::StrCat("no address answered at port ", port, " (", tried,
                                             "): is a firewall between the hosts?"));
}

}  // namespace skein::comm
