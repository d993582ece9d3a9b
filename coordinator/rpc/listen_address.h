// Addresses that a server listens on.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace skein::coordinator {

struct ListenAddress {
  std::string host;  // a name, an address, or an IPv6 address in brackets
  int port = 0;

  std::string ToString() const;
};

// "HOST:PORT", "[V6]:PORT". InvalidArgument quotes the text.
absl::StatusOr<ListenAddress> ParseListenAddress(const std::string& text);

// Why the address cannot be listened on: tries to, and says what the system says. Unavailable.
absl::Status ExplainBindFailure(const ListenAddress& address);

}  // namespace skein::coordinator
