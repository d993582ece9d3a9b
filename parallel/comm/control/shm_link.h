// A Link through two rings of a SharedSegment.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "parallel/comm/control/link.h"
#include "parallel/comm/control/shared_segment.h"
#include "parallel/comm/shared_memory/bell.h"

namespace skein::comm {

struct ShmLinkEnd {
  Ring out;
  Ring in;
  Bell* peer_bell = nullptr;
  pid_t peer_pid = 0;
  std::string peer;  // "rank 3 on host a", for messages
};

// The peer is alive when this is called, and `end` points into memory that outlives the link.
// A peer that ends is found by CheckPeer, through a pidfd: no other process can take its place.
absl::StatusOr<std::unique_ptr<Link>> MakeShmLink(ShmLinkEnd end);

}  // namespace skein::comm
