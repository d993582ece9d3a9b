// Debian builds abseil with its checks on: every lock that gRPC takes is looked up in a graph of
// all locks' orders, and an order that only might deadlock ends the process. Programs do without;
// tests keep it.
#pragma once

#include "absl/synchronization/mutex.h"

namespace skein {

// Call it first in main.
inline void StopDeadlockDetection() {
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
}

}  // namespace skein
