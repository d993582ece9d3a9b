// Sends messages over links. MakeControlChannel returns such a channel.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "parallel/comm/control/control_channel.h"
#include "parallel/comm/control/link.h"
#include "parallel/comm/control/shared_segment.h"
#include "parallel/comm/control/tcp_link.h"
#include "parallel/comm/shared_memory/bell.h"

namespace skein::comm {

// Everything that a rank's channel is made of. The leader has a link to every follower, a follower
// one to the leader. Members are destroyed from the last to the first.
struct Wiring {
  int rank = 0;
  int size = 1;
  std::string group;                       // name, for messages
  std::vector<std::string> rank_names;     // [size], "rank 3 on host a"
  std::unique_ptr<Bell> own_bell;          // where `bell` is not in shared memory
  std::unique_ptr<SharedSegment> segment;  // null where no peer is on this host
  Bell* bell = nullptr;                    // rung by all links
  std::unique_ptr<TcpLinkSet> tcp;         // null where all peers are on this host
  std::vector<std::unique_ptr<Link>> shm;
  std::vector<Link*> links;  // [size], owned by the two above; null where there is none
};

std::unique_ptr<ControlChannel> MakeLinkedChannel(Wiring wiring);

}  // namespace skein::comm
