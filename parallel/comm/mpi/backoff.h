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
// of a core. It sleeps half of what it has waited: two ranks that wait for each other in turn, each
// late by as much as it waits, would soon sleep as long as they may.
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
    absl::SleepFor(std::clamp((now - idle_since_) / kPartOfWait, kShortestSleep, kLongestSleep));
  }
  // Call after a poll that found something.
  void Reset() { *this = Backoff(spin_); }

 private:
  static constexpr absl::Duration kShortestSleep = absl::Microseconds(20);
  static constexpr absl::Duration kLongestSleep = absl::Milliseconds(1);
  static constexpr int kPartOfWait = 2;

  absl::Duration spin_;
  absl::Time idle_since_ = absl::InfinitePast();
};

}  // namespace skein::comm
