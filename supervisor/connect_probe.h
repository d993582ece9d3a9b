// Whether somebody takes connections at an address, asked again and again.
#pragma once

#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/host_port.h"

namespace skein::supervisor {

// Connects, and waits for the first byte or for the end of the connection: either shows that the
// other side accepts. A process that is stopped, or out of descriptors, connects (its kernel does)
// and stays silent. Blocks for `timeout` at most, and for as long as a name takes to be found.
absl::Status TakesConnections(const HostPort& address, absl::Duration timeout);

// Asks so every `interval`, from a thread of its own, and hands the answers over.
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
