// Network addresses as people write them.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace skein {

struct HostPort {
  std::string host;  // a name, an IPv4 address, or an IPv6 address in brackets
  int port = 0;

  std::string ToString() const;
  // Whether who listens there is reached from this host alone: by localhost, 127.0.0.0/8 or [::1];
  // other names are not looked up.
  bool IsLoopback() const;
};

// Parses "HOST:PORT". InvalidArgument quotes the text and says what form is wanted, also for a port
// below `least_port`, which is 1 for addresses to connect to.
absl::StatusOr<HostPort> ParseHostPort(std::string_view text, int least_port = 0);

}  // namespace skein
