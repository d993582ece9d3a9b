// Makes a group's small sums over the memory of its devices, and leaves all else to another
// transport.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "base/peer_sums.h"
#include "parallel/comm/communicator.h"
#include "parallel/comm/device_transport.h"

namespace skein::comm {

struct PeerTransport {
  std::unique_ptr<DeviceTransport> transport;
  std::string why_not;  // it is `rest` alone; empty where small sums go over memory
};

// A call of all ranks of `group`, over which handles are exchanged. `sums` is this rank's, or why
// it has none; `host` tells ranks of one host by equal texts. All ranks sum alike: `rest` makes
// every sum where they are of several hosts, or one of them cannot. Errors are those of `group`.
absl::StatusOr<PeerTransport> MakePeerTransport(Communicator& group, const std::string& host,
                                                absl::StatusOr<std::unique_ptr<PeerSums>> sums,
                                                std::unique_ptr<DeviceTransport> rest);

}  // namespace skein::comm
