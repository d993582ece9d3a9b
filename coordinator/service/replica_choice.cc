#include "coordinator/service/replica_choice.h"

#include <tuple>

namespace skein::coordinator {

std::optional<size_t> ChooseReplica(const std::vector<ReplicaView>& replicas) {
  std::optional<size_t> best;
  const auto weight = [&](size_t i) {
    const ReplicaView& replica = replicas[i];
    return std::make_tuple(replica.sequences >= replica.slots, replica.tokens - replica.cached,
                           replica.sequences);
  };
  for (size_t i = 0; i < replicas.size(); ++i) {
    if (!HasRoom(replicas[i])) continue;
    if (!best.has_value() || weight(i) < weight(*best)) best = i;
  }
  return best;
}

}  // namespace skein::coordinator
