// Who holds up a job, told from the last heartbeat of each of its ranks. Pure: no clock, no state.
//
// A rank in a collective waits for the ranks of the group that have not entered it; numbers tell,
// and a heartbeat that is older than others makes no difference to them. A rank in a message waits
// for its other end. A rank that waits looks for the others all the time: one that has not looked
// for long while others did waits for nobody, but is stuck inside its call, and those inside of the
// same one wait for it. While a rank on the way may be stuck, or has fallen silent, nobody is
// blamed: a moment later it moves, is stuck for certain, or is lost by its silence. Whoever is
// waited for past a deadline and waits for nobody is to blame.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/types/span.h"
#include "coordinator/cluster/messages.h"

namespace skein::coordinator {

struct Hang {
  int32_t rank = 0;  // that the others wait for
  // What it never entered and what it does instead, or what it entered and how long it has not
  // moved there; who waits where since when.
  std::string why;
};

// Nothing unless an operation is past its deadline. `activities`: by rank of the job.
std::optional<Hang> FindHang(absl::Span<const RankActivity> activities);

// What a rank that is silent did last, and who waits for it where since when.
std::string DescribeLoss(absl::Span<const RankActivity> activities, int32_t rank);

}  // namespace skein::coordinator
