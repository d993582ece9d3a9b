// How a rank waits for MPI, which has nothing to sleep on.
#pragma once

#include <sched.h>

#include <algorithm>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/precise_timers.h"

namespace skein::comm {

// Gives the core away between polls: yields for as long as `spin`, for a peer that is about to
// answer, then sleeps longer and longer, so that a rank which waits for a slow one costs about 1%
// of a core. It sleeps an eighth of what it has waited, at most: ranks of a pipeline wait for each
// other in turn, and what each is late lengthens the waits of all others. Four of them that slept a
// quarter came to sleep as long as they may.
class Backoff {
 public:
  explicit Backoff(absl::Duration spin) : spin_(spin) {}

  // Call after a poll that found nothing.
  void Pause() {
    const absl::Time now = absl::Now();
    if (idle_since_ == absl::InfinitePast()) idle_since_ = now;
    if (now - idle_since_ < spin_) {
      sched_yield();
      return;
    }
    LetTimersBePrecise();
    absl::SleepFor(SleepAfter(now - idle_since_));
  }
  static absl::Duration SleepAfter(absl::Duration waited) {
    return std::clamp(waited / kPartOfWait, kShortestSleep, kLongestSleep);
  }
  // Call after a poll that found something.
  void Reset() { *this = Backoff(spin_); }

 private:
  static constexpr absl::Duration kShortestSleep = absl::Microseconds(20);
  static constexpr absl::Duration kLongestSleep = absl::Milliseconds(3);
  static constexpr int kPartOfWait = 8;

  absl::Duration spin_;
  absl::Time idle_since_ = absl::InfinitePast();
};

}  // namespace skein::comm
