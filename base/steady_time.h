// The time for durations and deadlines: it goes on evenly, whatever happens to the time of day.
#pragma once

#include <time.h>

#include "absl/time/time.h"

namespace skein {

// To be compared with itself alone: it begins anywhere.
inline absl::Time SteadyNow() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return absl::TimeFromTimespec(now);
}

}  // namespace skein
