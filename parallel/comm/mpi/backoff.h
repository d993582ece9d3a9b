// How a rank waits for MPI, which has nothing to sleep on but a Bell that other ranks of its host
// ring.
#pragma once

#include <algorithm>
#include <cstdint>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/precise_timers.h"
#include "parallel/comm/shared_memory/bell.h"

namespace skein::comm {

// Waits between polls: not at all for as long as `spin`, for a peer that is about to answer, then
// it sleeps longer and longer, so that a rank which waits for a slow one costs about 1% of a core.
// It sleeps an eighth of what it has waited, at most: ranks of a pipeline wait for each other in
// turn, and what each is late lengthens the waits of all others. Four of them that slept a quarter
// came to sleep as long as they may.
class Backoff {
 public:
  // bell: what ends a sleep, where there is such.
  explicit Backoff(absl::Duration spin, Bell* bell = nullptr)
      : spin_(spin), bell_(bell), heard_(bell == nullptr ? 0 : bell->Count()) {}

  // Call before a poll: what is rung from then on ends the sleep behind it. Who was rung spins
  // anew: of a message in several pieces only the first one rings.
  void Listen() {
    if (bell_ == nullptr) return;
    const uint32_t count = bell_->Count();
    if (count != heard_) Reset();
    heard_ = count;
  }
  // Call after a poll that found nothing.
  void Pause() {
    const absl::Time now = absl::Now();
    if (idle_since_ == absl::InfinitePast()) idle_since_ = now;
    // A poll that finds nothing has yielded (MpiWire::Start). A second yield would leave what came
    // during the first one for a turn longer.
    if (now - idle_since_ < spin_) return;
    LetTimersBePrecise();
    const absl::Duration sleep = SleepAfter(now - idle_since_);
    if (bell_ != nullptr) {
      bell_->Wait(heard_, sleep);
    } else {
      absl::SleepFor(sleep);
    }
  }
  static absl::Duration SleepAfter(absl::Duration waited) {
    return std::clamp(waited / kPartOfWait, kShortestSleep, kLongestSleep);
  }
  // Call after a poll that found something.
  void Reset() { idle_since_ = absl::InfinitePast(); }

 private:
  static constexpr absl::Duration kShortestSleep = absl::Microseconds(20);
  static constexpr absl::Duration kLongestSleep = absl::Milliseconds(3);
  static constexpr int kPartOfWait = 8;

  const absl::Duration spin_;
  Bell* const bell_;
  uint32_t heard_;
  absl::Time idle_since_ = absl::InfinitePast();
};

}  // namespace skein::comm
