// Tells a transport how to wait in the call in flight.
#pragma once

#include <atomic>
#include <chrono>

#include "absl/time/time.h"
#include "parallel/comm/pulse.h"
#include "parallel/comm/rank_clock.h"

namespace skein::comm {

using SteadyTime = std::chrono::steady_clock::time_point;

// Long enough that the stages of a small model stay awake from step to step (waking one takes 70
// to 270 us on a virtual machine), short beside the steps of a large one.
inline constexpr absl::Duration kSpin = absl::Milliseconds(1);

struct Patience {
  absl::Duration timeout = absl::InfiniteDuration();  // of the call in flight
  SteadyTime deadline = SteadyTime::max();
  // The transport beats it while it waits for other ranks. A rank whose pulse stands still inside a
  // call is stuck there. May be null.
  Pulse* pulse = nullptr;
  // The transport tells it how long it has waited for other ranks to come into the call, as it
  // goes. May be null.
  RankClock* clock = nullptr;
  std::atomic<bool> failed = false;  // set when the wait must end
  // How long a host's transport keeps the core, but for yields, before it sleeps between polls.
  absl::Duration spin = kSpin;
};

}  // namespace skein::comm
