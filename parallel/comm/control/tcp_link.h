// Links over TCP, encrypted.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "parallel/comm/control/link.h"
#include "parallel/comm/control/tcp_socket.h"
#include "parallel/comm/shared_memory/bell.h"

namespace skein::comm {

// One thread of the set moves bytes between the sockets and queues in memory; it sleeps in poll.
// A connection that breaks, or whose other host has been silent for `silence`, makes its link
// Unavailable. Destruction closes the links and waits, at most a second, until what was written
// has left.
class TcpLinkSet {
 public:
  struct Peer {
    SecureSocket connection;
    std::string name;  // "rank 3 on host b", for messages
  };

  // `bell` is rung when a link has bytes, room, or lost its peer; it outlives the set.
  static absl::StatusOr<std::unique_ptr<TcpLinkSet>> Start(std::vector<Peer> peers, Bell& bell,
                                                           absl::Duration silence);
  virtual ~TcpLinkSet() = default;

  // The link to the peer with that index; owned by the set.
  virtual Link& link(int peer) = 0;
};

}  // namespace skein::comm
