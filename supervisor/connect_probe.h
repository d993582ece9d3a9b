// Asks again and again whether somebody takes connections at an address.
#pragma once

#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/host_port.h"

namespace skein::supervisor {

// Connects, says that it says nothing, and waits for the first byte or for the end of the
// connection: either shows that the other side accepts. With a process that is stopped or out of
// descriptors the connection succeeds, since the kernel makes it, but stays silent. Blocks for
// `timeout` at most, and for as long as a name takes to be found.
absl::Status TakesConnections(const HostPort& address, absl::Duration timeout);

// Calls TakesConnections every `interval` on a thread of its own, and hands the answers to `take`.
class ConnectProbe {
 public:
  ConnectProbe(const HostPort& address, absl::Duration interval,
               std::function<void(absl::Status)> take);
  ~ConnectProbe();  // `take` is not called any more; the thread may end later
  ConnectProbe(const ConnectProbe&) = delete;

 private:
  struct Shared;
  const std::shared_ptr<Shared> shared_;
};

}  // namespace skein::supervisor
