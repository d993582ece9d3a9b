// Chooses the replica that a request goes to.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/status.h"

namespace skein::coordinator {

// The most that a replica can run, however long a request waits there.
struct ReplicaLimits {
  int64_t slots = 0;           // sequences at once
  int64_t context_length = 0;  // tokens of one sequence, for which there are pages
};

// The most that a request may come to take of them.
struct Demand {
  int64_t answers = 1;  // that are not finished
  int64_t prompt = 0;
  int64_t max_tokens = 0;  // of each whole answer
};

// FailedPrecondition, with the limit, when the replica would give the request up at once. Pure.
absl::Status CheckFits(const Demand& demand, const ReplicaLimits& limits);

struct ReplicaView {
  int64_t sequences = 0;  // that it was given and has not finished
  int64_t slots = 0;      // sequences that it runs at once
  int64_t tokens = 0;     // that its sequences are yet to compute, at most
  int64_t cached = 0;     // of the request's prompt that it need not compute
};

// As many sequences may wait at a replica as run at once, so that its scheduler has a next one.
inline bool HasRoom(const ReplicaView& replica) { return replica.sequences < 2 * replica.slots; }

// The index of the best replica; none when none has room. One with a free slot goes first. Then all
// is weighed in tokens: a prefix of 1000 tokens that is cached outweighs up to 1000 tokens of
// outstanding work. Then the one with the fewest sequences, then the lowest index. Pure.
std::optional<size_t> ChooseReplica(const std::vector<ReplicaView>& replicas);

}  // namespace skein::coordinator
