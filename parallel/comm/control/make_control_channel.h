// Makes the control channel of a group: shared memory to peers on the same host, TLS over TCP to
// others.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/port_range.h"
#include "parallel/comm/communicator.h"
#include "parallel/comm/control/control_channel.h"
#include "parallel/comm/host_identity.h"

namespace skein::comm {

struct ControlOptions {
  // How long the ranks may take to connect.
  absl::Duration connect_timeout = absl::Seconds(30);
  // A host that no longer answers its kernel's keepalives for this long is gone.
  absl::Duration silence = absl::Seconds(4);
  // The size of each ring in shared memory, a power of two. This one holds several step plans;
  // longer messages go in pieces.
  size_t ring_bytes = 256 << 10;
  // That leaders listen at for ranks on other hosts, each at one while the channel is made; none:
  // any.
  std::optional<PortRange> ports;
  // Replaces this machine's identity, where a test plays several hosts.
  std::optional<HostIdentity> host;
};

// A collective call of all ranks of `group`, which carries addresses and is not needed afterwards;
// all ranks give the same ring_bytes. On failure every rank gets an error that names the rank at
// fault. A rank that shares the leader's host but not its processes (another container, another
// user) is reached by TCP. The key of TLS is drawn by the leader and goes to the others over
// `group`: who can listen or speak there can learn it.
absl::StatusOr<std::unique_ptr<ControlChannel>> MakeControlChannel(
    Communicator& group, const ControlOptions& options = {});

}  // namespace skein::comm
