// How a rank waits for MPI, which has nothing to sleep on.
#pragma once

#include <sched.h>

#include <algorithm>

#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace skein::comm {

// Gives the core away between polls: yields for as long as `spin`, for a peer that is about to
// answer, then sleeps longer and longer, so that a rank which waits for a slow one costs about 1%
// of a core.
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
    absl::SleepFor(sleep_);
    sleep_ = std::min(sleep_ * 2, kLongestSleep);
  }
  // Call after a poll that found something.
  void Reset() { *this = Backoff(spin_); }

 private:
  static constexpr absl::Duration kShortestSleep = absl::Microseconds(20);
  static constexpr absl::Duration kLongestSleep = absl::Milliseconds(1);

  absl::Duration spin_;
  absl::Time idle_since_ = absl::InfinitePast();
  absl::Duration sleep_ = kShortestSleep;
};

}  // namespace skein::comm
