// Tells a transport how to wait in the call in flight.
#pragma once

#include <atomic>
#include <chrono>

#include "absl/time/time.h"
#include "parallel/comm/pulse.h"
#include "parallel/comm/rank_clock.h"

namespace skein::comm {

using SteadyTime = std::chrono::steady_clock::time_point;

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
  // Longer than an exchange of activations among ranks that run (20-60 us), shorter than a step.
  absl::Duration spin = absl::Microseconds(200);
};

}  // namespace skein::comm
