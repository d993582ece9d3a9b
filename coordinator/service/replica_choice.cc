#include "coordinator/service/replica_choice.h"

#include <tuple>

#include "absl/strings/str_cat.h"

namespace skein::coordinator {

absl::Status CheckFits(const Demand& demand, const ReplicaLimits& limits) {
  const int64_t longest = demand.prompt + demand.max_tokens;
  if (demand.answers > limits.slots) {
    return absl::FailedPreconditionError(absl::StrCat("it runs ", limits.slots,
                                                      " sequences at once, fewer than the ",
                                                      demand.answers, " answers"));
  }
  if (longest > limits.context_length) {
    return absl::FailedPreconditionError(absl::StrCat(
        "its context of ", limits.context_length, " tokens is too short for a prompt of ",
        demand.prompt, " and an answer of ", demand.max_tokens));
  }
  return absl::OkStatus();
}

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
