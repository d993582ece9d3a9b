#include "supervisor/connect_probe.h"

#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <string>
#include <thread>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/mutex.h"
#include "base/status_util.h"

namespace skein::supervisor {
namespace {

// Whether the socket became ready for `events` before the deadline.
bool Await(int fd, short events, absl::Time deadline) {
  while (true) {
    const int64_t left_ms = absl::ToInt64Milliseconds(deadline - absl::Now());
    pollfd one = {.fd = fd, .events = events};
    const int ready = poll(&one, 1, left_ms > 0 ? static_cast<int>(left_ms) : 0);
    if (ready > 0) return true;
    if (ready == 0 || errno != EINTR) return false;
  }
}

absl::Status TakesConnection(const addrinfo& place, absl::Time deadline) {
  const int fd = socket(place.ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0) return ErrnoStatus(errno, "socket");
  const absl::Cleanup close_it = [fd] { close(fd); };
  if (connect(fd, place.ai_addr, place.ai_addrlen) != 0) {
    if (errno != EINPROGRESS) return ErrnoStatus(errno, "connect");
    if (!Await(fd, POLLOUT, deadline)) return absl::DeadlineExceededError("connect takes too long");
    int error = 0;
    socklen_t size = sizeof(error);
    getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size);
    if (error != 0) return ErrnoStatus(error, "connect");
  }
  // A server of TLS says nothing before its client does, but ends a connection that its client
  // ends.
  shutdown(fd, SHUT_WR);
  if (!Await(fd, POLLIN, deadline)) return absl::DeadlineExceededError("nobody accepts");
  return absl::OkStatus();
}

}  // namespace

absl::Status TakesConnections(const HostPort& address, absl::Duration timeout) {
  const absl::Time deadline = absl::Now() + timeout;
  std::string host = address.host;
  if (host.starts_with('[')) host = host.substr(1, host.size() - 2);
  const addrinfo hints = {.ai_socktype = SOCK_STREAM};
  addrinfo* places = nullptr;
  const int error = getaddrinfo(host.c_str(), absl::StrCat(address.port).c_str(), &hints, &places);
  if (error != 0) return absl::NotFoundError(gai_strerror(error));
  const absl::Cleanup free_them = [places] { freeaddrinfo(places); };
  absl::Status status;
  for (const addrinfo* place = places; place != nullptr; place = place->ai_next) {
    status = TakesConnection(*place, deadline);
    if (status.ok()) break;
  }
  return status;
}

struct ConnectProbe::Shared {
  Mutex mutex;
  CondVar changed;
  std::function<void(absl::Status)> take ABSL_GUARDED_BY(mutex);
  bool over ABSL_GUARDED_BY(mutex) = false;
};

ConnectProbe::ConnectProbe(const HostPort& address, absl::Duration interval,
                           std::function<void(absl::Status)> take)
    : shared_(std::make_shared<Shared>()) {
  shared_->take = std::move(take);
  std::thread([shared = shared_, address, interval] {
    while (true) {
      const auto next = std::chrono::steady_clock::now() + absl::ToChronoMilliseconds(interval);
      absl::Status status = TakesConnections(address, interval);
      MutexLock lock(&shared->mutex);
      if (!shared->over) shared->take(std::move(status));
      while (!shared->over && shared->changed.WaitUntil(&shared->mutex, next)) {
      }
      if (shared->over) return;
    }
  }).detach();
}

ConnectProbe::~ConnectProbe() {
  MutexLock lock(&shared_->mutex);
  shared_->over = true;
  shared_->changed.NotifyAll();
}

}  // namespace skein::supervisor
