#include "base/host_port.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace skein {
namespace {

constexpr int kMaxPort = 65535;

bool IsHost(const std::string& text) {
  if (text.empty()) return false;
  if (text.front() != '[') return text.find_first_of(" /:[]") == std::string::npos;
  return text.size() > 2 && text.find_first_of(" /[]", 1) == text.size() - 1 && text.back() == ']';
}

}  // namespace

std::string HostPort::ToString() const { return absl::StrCat(host, ":", port); }

bool HostPort::IsLoopback() const {
  if (absl::EqualsIgnoreCase(host, "localhost") || host == "[::1]") return true;
  in_addr address;
  return inet_pton(AF_INET, host.c_str(), &address) == 1 && ntohl(address.s_addr) >> 24 == 127;
}

absl::StatusOr<HostPort> ParseHostPort(std::string_view text, int least_port) {
  const std::string whole(text);
  const size_t colon = whole.rfind(':');
  if (colon != std::string::npos && IsHost(whole.substr(0, colon))) {
    HostPort address = {.host = whole.substr(0, colon)};
    if (absl::SimpleAtoi(whole.substr(colon + 1), &address.port) && address.port >= least_port &&
        address.port <= kMaxPort) {
      return address;
    }
  }
  return absl::InvalidArgumentError(absl::StrCat("'", whole, "' is not HOST:PORT with a port from ",
                                                 least_port, " to ", kMaxPort,
                                                 ", like 127.0.0.1:50051"));
}

}  // namespace skein
