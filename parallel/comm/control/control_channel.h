// Bytes between the leader of a replica and its other ranks: step plans out, step results back.
//
// Inside a host the bytes go through shared memory and waiters sleep on a futex; between hosts
// they go over TCP. Nobody spins: an idle rank uses no measurable CPU and wakes within 1 ms.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace skein::comm {

struct ControlMessage {
  int from = 0;  // rank in the channel's group
  std::string bytes;
};

// Rank 0 of the group is the leader. One thread may send while another receives.
// Messages between two ranks arrive whole and in order; a message may have any size up to 64 MiB.
// Unavailable, naming the rank, when a peer is gone or has closed, once its last message was
// received; DeadlineExceeded when time passes; Cancelled after Close. A send that fails may have
// been cut off in the middle: all later sends of this rank fail alike. A receive may be repeated.
class ControlChannel {
 public:
  virtual ~ControlChannel() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;

  // Leader only: sends `bytes` to every other rank. Blocks while a peer's buffer is full.
  virtual absl::Status Broadcast(std::string_view bytes, absl::Time deadline) = 0;
  // Followers only: sends `bytes` to the leader.
  virtual absl::Status SendToLeader(std::string_view bytes, absl::Time deadline) = 0;
  // Leader: the next message of any rank. Followers: the leader's next message.
  virtual absl::StatusOr<ControlMessage> Receive(absl::Time deadline) = 0;

  // Wakes every waiter of this rank; its calls return Cancelled from then on. Any thread.
  virtual void Close() = 0;
};

}  // namespace skein::comm
