// Sleeps that end when they are to.
#pragma once

#include <sys/prctl.h>

namespace skein {

// Linux lets a thread sleep 50 us longer than it asked for, to wake several at once, unless the
// thread asks for less: to be called before a short sleep. Costs a system call the first time.
inline void LetTimersBePrecise() {
  constexpr unsigned long kSlackNanoseconds = 1000;  // NOLINT(google-runtime-int): prctl's type
  thread_local const bool asked = prctl(PR_SET_TIMERSLACK, kSlackNanoseconds) == 0;
  static_cast<void>(asked);
}

}  // namespace skein
