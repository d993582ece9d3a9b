// Bounds, slow jobs and waiting, as tests of losses and ends share them.
#pragma once

#include <functional>

#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace skein::testing {

// The bound that is promised to users for every loss.
inline constexpr absl::Duration kBound = absl::Seconds(5);

// For jobs whose answers must be in their middle when something happens: one of kLong tokens takes
// more than half a minute.
inline constexpr const char* kFaultyWorker = "tests/fault/faulty_worker";
inline constexpr const char* kSlow = "--slow=20ms";

// Looks until `predicate` is true; false after `timeout`.
inline bool WaitUntil(absl::Duration timeout, const std::function<bool()>& predicate) {
  const absl::Time deadline = absl::Now() + timeout;
  while (!predicate()) {
    if (absl::Now() > deadline) return false;
    absl::SleepFor(absl::Milliseconds(20));
  }
  return true;
}

}  // namespace skein::testing
