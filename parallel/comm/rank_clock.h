// Counts a rank's RankTimes as it goes.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>

#include "absl/base/thread_annotations.h"
#include "base/mutex.h"
#include "parallel/comm/rank_times.h"

namespace skein::comm {

// Thread-safe: the threads that compute tell it of every change, and any thread reads it. Where two
// threads exchange at a time (a device's host thread and the one that carries out steps), what
// either does counts, once. A change costs a look at the clock and an uncontended lock. Times are
// of the steady clock, in ns.
class RankClock {
 public:
  // Nothing counts before. The rank has no step in hand.
  void Start(int64_t now_ns);
  // Whether a step is in hand.
  void SetBusy(bool busy, int64_t now_ns);
  // Around an exchange with other ranks.
  void Enter(int64_t now_ns);
  void Leave(int64_t now_ns);
  // Inside of one: the calling thread has waited so long for others to come.
  void AddWaited(int64_t ns) { waited_ns_.fetch_add(ns, std::memory_order_relaxed); }

  // Since the start, up to now, whatever goes on; none before the start.
  std::optional<RankTimes> Read();

 private:
  // Counts the time since the last change as what went on since.
  void Settle(int64_t now_ns) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  std::atomic<int64_t> waited_ns_ = 0;  // that was not settled yet
  Mutex mutex_;
  bool started_ ABSL_GUARDED_BY(mutex_) = false;
  bool busy_ ABSL_GUARDED_BY(mutex_) = false;
  int exchanges_ ABSL_GUARDED_BY(mutex_) = 0;  // under way
  int64_t settled_ns_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t compute_ns_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t transfer_ns_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t bubble_ns_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t waiting_ns_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace skein::comm
