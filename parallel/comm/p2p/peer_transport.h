// Makes a group's small sums over the memory of its devices, and leaves all else to another
// transport.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/device_timer.h"
#include "base/peer_sums.h"
#include "parallel/comm/communicator.h"
#include "parallel/comm/device_transport.h"
#include "parallel/comm/p2p/crossover.h"

namespace skein::comm {

// What a rank brings with it.
struct PeerEnd {
  std::string self;  // names it in the others' errors: "rank 3 on node-b"
  std::string host;  // equal texts on ranks of one host
  absl::StatusOr<std::unique_ptr<PeerSums>> sums;  // or why it has none
  // Of its device, to measure how large sums may be; null on all ranks: all that `sums` takes.
  DeviceTimer* timer = nullptr;
  absl::Duration timeout = absl::InfiniteDuration();  // of a sum that is measured
};

// Opens the ends of all ranks of `group` for each other, where `host` is the same text on all.
// Returns why none is open, the same on all ranks; empty where each is. A call of all ranks; errors
// are those of `group`.
absl::StatusOr<std::string> OpenPeerSums(Communicator& group, const std::string& host,
                                         const absl::StatusOr<std::unique_ptr<PeerSums>>& sums);

// Closes what is open of them. A call of all ranks: all have closed before one's memory goes.
absl::Status ClosePeerSums(Communicator& group, PeerSums& sums);

struct PeerTransport {
  std::unique_ptr<DeviceTransport> transport;
  std::string why_not;          // it is `rest` alone; empty where small sums go over memory
  int64_t most_bytes = 0;       // of these
  int64_t one_shot_bytes = 0;   // of those that take one shot, where they were measured
  std::vector<SumTimes> times;  // likewise, this rank's
};

// A call of all ranks of `group`, over which handles are exchanged. All ranks sum alike: `rest`
// makes every sum where they are of several hosts, where one of them cannot, and where it is faster
// at all sizes as rank 0 measures. Errors are those of `group`, and of what is measured.
absl::StatusOr<PeerTransport> MakePeerTransport(Communicator& group, PeerEnd end,
                                                std::unique_ptr<DeviceTransport> rest);

}  // namespace skein::comm
