// Which replica a request goes to.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace skein::coordinator {

struct ReplicaView {
  int64_t requests = 0;  // that it was given and has not finished
  int64_t tokens = 0;    // that these may take, at most
  int64_t capacity = 0;  // requests that it may be given
};

// The index of the replica with the fewest requests, then tokens, then the lowest index; none when
// all are at their capacity. Pure.
std::optional<size_t> ChooseReplica(const std::vector<ReplicaView>& replicas);

}  // namespace skein::coordinator
