#include "coordinator/http2_guard/peer_name.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace skein::coordinator {
namespace {

constexpr std::string_view kPrefix = "skein-";

// Other processes of this network namespace may have our process number.
uint64_t RandomNumber() {
  std::random_device random;
  return uint64_t{random()} << 32 | random();
}

}  // namespace

std::string AddressOfPeer(int fd) {
  sockaddr_storage peer = {};
  socklen_t size = sizeof(peer);
  if (getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &size) != 0) return "";
  char text[INET6_ADDRSTRLEN] = {};
  if (peer.ss_family == AF_INET) {
    const auto& v4 = reinterpret_cast<const sockaddr_in&>(peer);
    inet_ntop(AF_INET, &v4.sin_addr, text, sizeof(text));
    return absl::StrCat("ipv4:", text, ":", ntohs(v4.sin_port));
  }
  if (peer.ss_family != AF_INET6) return "";
  const auto& v6 = reinterpret_cast<const sockaddr_in6&>(peer);
  if (IN6_IS_ADDR_V4MAPPED(&v6.sin6_addr)) {
    inet_ntop(AF_INET, v6.sin6_addr.s6_addr + 12, text, sizeof(text));
    return absl::StrCat("ipv4:", text, ":", ntohs(v6.sin6_port));
  }
  inet_ntop(AF_INET6, &v6.sin6_addr, text, sizeof(text));
  return absl::StrCat("ipv6:[", text, "]:", ntohs(v6.sin6_port));
}

void NameSocket(int fd, const std::string& address) {
  static const uint64_t process = RandomNumber();
  static std::atomic<uint64_t> next = 0;
  const std::string name = absl::StrCat(absl::string_view(kPrefix.data(), kPrefix.size()),
                                        absl::Hex(process), "-", next.fetch_add(1), "/", address);
  sockaddr_un to = {.sun_family = AF_UNIX};
  // An abstract name begins with a zero, and is no file.
  const size_t size = std::min(name.size(), sizeof(to.sun_path) - 1);
  std::memcpy(to.sun_path + 1, name.data(), size);
  // Without a name gRPC tells none: only the log misses it.
  (void)bind(fd, reinterpret_cast<const sockaddr*>(&to),
             static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + size));
}

std::string AddressIn(const std::string& peer) {
  const size_t slash = peer.find('/');
  const std::string begin = absl::StrCat("unix-abstract:", std::string(kPrefix));
  if (slash == std::string::npos || !absl::StartsWith(peer, begin)) return peer;
  return peer.substr(slash + 1);
}

}  // namespace skein::coordinator
