// Finds the rank that holds up a job, from the last heartbeat of each of its ranks. Pure: no clock,
// no state.
//
// A rank in a collective waits for the ranks of the group that have not entered it. Call numbers
// tell which these are, also where some heartbeats are older than others. A rank in a message waits
// for its other end. A rank that waits polls for the others all the time. One that has not polled
// for long, while others did, waits for nobody: it is stuck inside its call, and the other ranks
// inside that call wait for it. The rank to blame is one that is waited for past a deadline and
// waits for nobody itself. While a rank on the way to it may be stuck, or has fallen silent, nobody
// is blamed: a moment later that rank moves, is stuck for certain, or is lost by its silence.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/time/time.h"
#include "absl/types/span.h"
#include "parallel/comm/progress.h"

namespace skein::coordinator {

// What a rank did with other ranks, as its last heartbeat tells it.
struct RankActivity : comm::Progress {
  absl::Duration age;  // of the heartbeat
};

struct Hang {
  int32_t rank = 0;  // the one that the others wait for
  // Tells which call it never entered and what it does instead, or which call it entered and for
  // how long it has not moved there. Then tells who waits where since when.
  std::string why;
};

// Returns the rank to blame; nothing unless an operation is past its deadline. `activities` are by
// rank of the job.
std::optional<Hang> FindHang(absl::Span<const RankActivity> activities);

// Describes what a silent rank did last, and who waits for it where since when.
std::string DescribeLoss(absl::Span<const RankActivity> activities, int32_t rank);

}  // namespace skein::coordinator
