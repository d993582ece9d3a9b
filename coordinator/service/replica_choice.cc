#include "coordinator/service/replica_choice.h"

#include <tuple>

namespace skein::coordinator {

std::optional<size_t> ChooseReplica(const std::vector<ReplicaView>& replicas) {
  std::optional<size_t> best;
  const auto weight = [&](size_t i) {
    return std::make_tuple(replicas[i].requests, replicas[i].tokens);
  };
  for (size_t i = 0; i < replicas.size(); ++i) {
    if (replicas[i].requests >= replicas[i].capacity) continue;
    if (!best.has_value() || weight(i) < weight(*best)) best = i;
  }
  return best;
}

}  // namespace skein::coordinator
