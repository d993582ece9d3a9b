// Addresses that a server listens on.
#pragma once

#include "absl/status/status.h"
#include "base/host_port.h"

namespace skein::coordinator {

// Whether the address can be listened on: tries to, without keeping it. Unavailable says what the
// system says.
absl::Status CheckListenAddress(const HostPort& address);

}  // namespace skein::coordinator
