#include "coordinator/rpc/listen_address.h"

#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>

#include "absl/strings/str_cat.h"

namespace skein::coordinator {
namespace {

// errno; 0 when it went well.
int TryToBind(const addrinfo& address) {
  const int fd = socket(address.ai_family, address.ai_socktype | SOCK_CLOEXEC, 0);
  if (fd < 0) return errno;
  // As gRPC does: connections of an earlier server that linger take no port.
  const int on = 1;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  const int error = bind(fd, address.ai_addr, address.ai_addrlen) == 0 ? 0 : errno;
  close(fd);
  return error;
}

}  // namespace

absl::Status CheckListenAddress(const HostPort& address) {
  const std::string what = absl::StrCat("--listen: cannot listen on ", address.ToString(), ": ");
  std::string host = address.host;
  if (host.size() > 2 && host.front() == '[') host = host.substr(1, host.size() - 2);
  const addrinfo hints = {.ai_flags = AI_PASSIVE, .ai_socktype = SOCK_STREAM};
  addrinfo* found = nullptr;
  const int error = getaddrinfo(host.c_str(), std::to_string(address.port).c_str(), &hints, &found);
  if (error != 0) return absl::UnavailableError(absl::StrCat(what, gai_strerror(error)));
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(found, &freeaddrinfo);
  // One of a name's addresses is enough, as it is for gRPC.
  int reason = 0;
  for (const addrinfo* entry = found; entry != nullptr; entry = entry->ai_next) {
    reason = TryToBind(*entry);
    if (reason == 0) return absl::OkStatus();
  }
  if (reason == EADDRINUSE) {
    return absl::UnavailableError(absl::StrCat(
        what,
        "the port is in use, maybe by another coordinator; choose one with --listen=HOST:PORT"
        " (port 0 takes a free one)"));
  }
  return absl::UnavailableError(absl::StrCat(what, strerror(reason)));
}

}  // namespace skein::coordinator
