#include "parallel/planner/admission.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "parallel/planner/device_rules.h"

namespace skein::plan {
namespace {

absl::Status CrossingRefusal(const Candidate& candidate) {
  return absl::FailedPreconditionError(
      absl::StrCat("the shards of a stage would be spread over nodes ", candidate.crossing,
                   ", and every layer's sums cross the network; it must be asked for by tp=",
                   candidate.layout.tp_size));
}

}  // namespace

absl::Status CheckCandidate(const Candidate& candidate, const LayoutRequest& request) {
  if (!request.Allows(candidate.layout)) {
    return absl::FailedPreconditionError(request.ToString() + " was asked for");
  }
  SKEIN_RETURN_IF_ERROR(candidate.refusal);
  const bool tensor_is_asked = request.tp_size || (request.pp_size && request.dp_size);
  if (!candidate.crossing.empty() && !tensor_is_asked) return CrossingRefusal(candidate);
  if (candidate.sums_by_hosts && !tensor_is_asked) {
    return SumsByHostsRefusal(candidate.layout.tp_size);
  }
  return absl::OkStatus();
}

void KeepSumsOnNodes(const Job& job, const LayoutRequest& request,
                     std::vector<Candidate>& candidates) {
  const auto without = std::find_if(candidates.begin(), candidates.end(), [&](const auto& of) {
    return of.crossing.empty() && 2 * of.layout.ranks() >= job.ranks() &&
           CheckCandidate(of, request).ok();
  });
  if (without == candidates.end()) return;
  for (Candidate& candidate : candidates) {
    if (candidate.crossing.empty() || !CheckCandidate(candidate, request).ok()) continue;
    candidate.refusal = absl::FailedPreconditionError(
        absl::StrCat("the shards of a stage would be spread over nodes ", candidate.crossing,
                     ", and every layer's sums cross the network; ", without->layout.ToString(),
                     " does without"));
  }
}

void UseRanks(const Job& job, const Constraints& constraints, const Evidence& evidence,
              std::vector<Candidate>& candidates) {
  const auto rank = [&](const Candidate& of) {
    return std::pair(WithinLimits(constraints.goal, of.standing),
                     Score(constraints.goal, job.workload, of.standing));
  };
  int32_t most = 0;
  std::pair<bool, double> best, best_of_most;
  for (const Candidate& of : candidates) {
    if (!CheckCandidate(of, constraints.layout).ok()) continue;
    best = std::max(best, rank(of));
    if (of.layout.ranks() > most) best_of_most = {};
    most = std::max(most, of.layout.ranks());
    if (of.layout.ranks() == most) best_of_most = std::max(best_of_most, rank(of));
  }
  // Who sets a limit wants it kept, by fewer ranks if need be.
  if (best.first && !best_of_most.first) return;
  const double gain = 1 + std::max(kAlike, evidence.spread);
  if (evidence.measured && best.second > best_of_most.second * gain) return;
  std::erase_if(candidates, [&](const Candidate& of) { return of.layout.ranks() < most; });
}

}  // namespace skein::plan
