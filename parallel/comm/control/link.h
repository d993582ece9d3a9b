// A stream of bytes in both directions between the leader and one follower.
#pragma once

#include <cstddef>
#include <string_view>

#include "absl/status/statusor.h"

namespace skein::comm {

// Nothing here blocks: a rank that finds no room or no bytes sleeps on its Bell, which the link
// rings when either comes, or when the peer goes. One thread may write while another reads.
class Link {
 public:
  virtual ~Link() = default;

  // Takes as much of first + second as there is room for; 0 when there is none.
  // Unavailable, naming the peer, when it is gone.
  virtual absl::StatusOr<size_t> TryWrite(std::string_view first, std::string_view second) = 0;
  // Gives at most `size` bytes; 0 when there are none yet. Unavailable once a peer that is gone
  // has been read to the end.
  virtual absl::StatusOr<size_t> TryRead(char* bytes, size_t size) = 0;
  // Checks that the peer still lives, for links that do not notice it otherwise. Costs a system
  // call.
  virtual void CheckPeer() {}
  // Tells the peer that no more will come. What was written still reaches it.
  virtual void Close() = 0;
};

}  // namespace skein::comm
