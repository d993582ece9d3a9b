// How a rank waits for MPI, which has nothing to sleep on.
#pragma once

#include <sched.h>
#include <sys/prctl.h>

#include <algorithm>

#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace skein::comm {

// Gives the core away between polls: yields for as long as `spin`, for a peer that is about to
// answer, then sleeps longer and longer, so that a rank which waits for a slow one costs about 1%
// of a core. It sleeps a small part of what it has waited: two ranks that wait for each other in
// turn, each late by as much as it waits, would soon sleep as long as they may.
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
  static constexpr int kPartOfWait = 8;

  // Linux may end a thread's sleep 50 us late, to wake several at once, unless the thread asks for
  // less.
  static void LetTimersBePrecise() {
    constexpr unsigned long kSlackNanoseconds = 1000;  // NOLINT(google-runtime-int): prctl's type
    thread_local const bool asked = prctl(PR_SET_TIMERSLACK, kSlackNanoseconds) == 0;
    static_cast<void>(asked);
  }

  absl::Duration spin_;
  absl::Time idle_since_ = absl::InfinitePast();
};

}  // namespace skein::comm
