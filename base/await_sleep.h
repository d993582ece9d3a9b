// For tests: sees from outside whether a thread sleeps.
#pragma once

#include <unistd.h>

#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace skein {

// Waits until a thread of any process sleeps, as one does that has come to the call in which it
// waits for another. False: it still runs after ten seconds, or has ended.
inline bool AwaitSleep(pid_t thread) {
  const absl::Time deadline = absl::Now() + absl::Seconds(10);
  while (absl::Now() < deadline) {
    std::ifstream stat(absl::StrCat("/proc/", thread, "/stat"));
    std::string line;
    if (!std::getline(stat, line)) return false;
    // The state follows the name, which may hold anything: "17 (a) b) S 1 ...".
    const size_t name_end = line.rfind(')');
    if (name_end != std::string::npos && line.compare(name_end, 3, ") S") == 0) return true;
    absl::SleepFor(absl::Microseconds(200));
  }
  return false;
}

}  // namespace skein
