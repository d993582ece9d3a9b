// Messages from one rank of a group to another, in order and numbered per pair and direction.
// Private to this folder.
//
// A message is a frame, and a payload on a lane of its own if that is large. A sender copies it and
// goes on, up to a window per receiver; beyond, it waits for the receiver to take the oldest.
//
// Owns all memory that MPI sees. The destructor hands requests that have not ended to the wire, be
// they of a call that failed or of a message that its receiver is about to take. After a failed
// call it can only be destroyed. One thread at a time.
#pragma once

#include <mpi.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "absl/status/status.h"
#include "parallel/comm/mpi/mpi_link.h"

namespace skein::comm {

// Errors: FailedPrecondition where the sizes of sender and receiver differ, DeadlineExceeded that
// names the other rank.
class MpiMessages {
 public:
  // `link` and its wire outlive the messages.
  explicit MpiMessages(MpiLink& link) : link_(link), peers_(link.size()) {}
  ~MpiMessages();
  MpiMessages(const MpiMessages&) = delete;
  MpiMessages& operator=(const MpiMessages&) = delete;

  // `call` names the other end and the message's number.
  absl::Status Send(const Call& call, ConstBytes data);
  absl::Status Receive(const Call& call, Bytes data);
  // Lets MPI carry what was sent; waits for nothing.
  absl::Status Progress();
  // Waits until everything that was sent to `to` is taken.
  absl::Status Flush(int to);

 private:
  // A message that MPI may still read from.
  struct Outgoing {
    int64_t number = 0;
    std::vector<std::byte> bytes;  // header, payload
    MPI_Request requests[2] = {MPI_REQUEST_NULL, MPI_REQUEST_NULL};
  };
  struct Peer {
    std::deque<Outgoing> outgoing;  // the oldest first
    size_t outgoing_bytes = 0;      // of payloads
  };

  // Forgets what was taken meanwhile; waits only when `bytes` more do not fit the window.
  absl::Status MakeRoom(size_t bytes, int to);

  MpiLink& link_;
  std::vector<Peer> peers_;  // [size]
  // For the one message that is being received.
  std::vector<std::byte> frame_in_ = std::vector<std::byte>(kFrameBytes);
  std::vector<std::byte> payload_in_;
  MPI_Request incoming_ = MPI_REQUEST_NULL;
};

}  // namespace skein::comm
