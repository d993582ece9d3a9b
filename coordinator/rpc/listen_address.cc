#include "coordinator/rpc/listen_address.h"

#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace skein::coordinator {

std::string ListenAddress::ToString() const { return absl::StrCat(host, ":", port); }

absl::StatusOr<ListenAddress> ParseListenAddress(const std::string& text) {
  const size_t colon = text.rfind(':');
  ListenAddress address;
  if (colon != std::string::npos && colon > 0 &&
      absl::SimpleAtoi(text.substr(colon + 1), &address.port) && address.port >= 0 &&
      address.port <= 65535) {
    address.host = text.substr(0, colon);
    return address;
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "--listen: '", text, "' is not HOST:PORT, like 127.0.0.1:50051 (port 0 takes a free one)"));
}

absl::Status ExplainBindFailure(const ListenAddress& address) {
  const std::string what = absl::StrCat("cannot listen on ", address.ToString(), ": ");
  std::string host = address.host;
  if (host.size() > 2 && host.front() == '[') host = host.substr(1, host.size() - 2);
  const addrinfo hints = {.ai_flags = AI_PASSIVE, .ai_socktype = SOCK_STREAM};
  addrinfo* found = nullptr;
  const int error = getaddrinfo(host.c_str(), std::to_string(address.port).c_str(), &hints, &found);
  if (error != 0) return absl::UnavailableError(absl::StrCat(what, gai_strerror(error)));
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(found, &freeaddrinfo);
  const int fd = socket(found->ai_family, found->ai_socktype, 0);
  int reason = 0;
  if (fd < 0 || bind(fd, found->ai_addr, found->ai_addrlen) != 0) reason = errno;
  if (fd >= 0) close(fd);
  if (reason == EADDRINUSE) {
    return absl::UnavailableError(absl::StrCat(
        what,
        "the port is in use, maybe by another coordinator; choose one with --listen=HOST:PORT"
        " (port 0 takes a free one)"));
  }
  return absl::UnavailableError(
      absl::StrCat(what, reason == 0 ? "gRPC could not open the port" : strerror(reason)));
}

}  // namespace skein::coordinator
