// Time as a dependency, so that tests choose it.
#pragma once

#include "absl/base/thread_annotations.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/mutex.h"

namespace skein {

class Clock {
 public:
  virtual ~Clock() = default;
  virtual absl::Time Now() const = 0;
};

// The system's clock. Any thread may call it.
class RealClock final : public Clock {
 public:
  absl::Time Now() const override { return absl::Now(); }
  static const RealClock& Get();
};

// A clock that stands still until it is told to advance. Any thread may call it.
class SimulatedClock final : public Clock {
 public:
  explicit SimulatedClock(absl::Time start = absl::FromUnixSeconds(1)) : now_(start) {}
  absl::Time Now() const override {
    MutexLock lock(&mutex_);
    return now_;
  }
  void Advance(absl::Duration by) {
    MutexLock lock(&mutex_);
    now_ += by;
  }

 private:
  mutable Mutex mutex_;
  absl::Time now_ ABSL_GUARDED_BY(mutex_);
};

inline const RealClock& RealClock::Get() {
  static const RealClock clock;
  return clock;
}

}  // namespace skein
