#include "parallel/comm/rank_clock.h"

#include <algorithm>
#include <utility>

#include "absl/time/time.h"
#include "parallel/comm/pulse.h"

namespace skein::comm {

void RankClock::Start(int64_t now_ns) {
  MutexLock lock(&mutex_);
  started_ = true;
  settled_ns_ = now_ns;
  waited_ns_.store(0, std::memory_order_relaxed);
}

void RankClock::SetBusy(bool busy, int64_t now_ns) {
  MutexLock lock(&mutex_);
  Settle(now_ns);
  busy_ = busy;
}

void RankClock::Enter(int64_t now_ns) {
  MutexLock lock(&mutex_);
  Settle(now_ns);
  ++exchanges_;
}

void RankClock::Leave(int64_t now_ns) {
  MutexLock lock(&mutex_);
  Settle(now_ns);
  --exchanges_;
}

std::optional<RankTimes> RankClock::Read() {
  MutexLock lock(&mutex_);
  if (!started_) return std::nullopt;
  Settle(Pulse::NowNs());
  return RankTimes{.compute = absl::Nanoseconds(compute_ns_),
                   .transfer = absl::Nanoseconds(transfer_ns_),
                   .bubble = absl::Nanoseconds(bubble_ns_),
                   .waiting = absl::Nanoseconds(waiting_ns_)};
}

void RankClock::Settle(int64_t now_ns) {
  // Another thread may have looked at its clock before this one, and come later.
  const int64_t passed = std::max<int64_t>(0, now_ns - settled_ns_);
  settled_ns_ += passed;
  const int64_t waited = std::min(passed, waited_ns_.exchange(0, std::memory_order_relaxed));
  if (!started_) return;
  bubble_ns_ += waited;
  (exchanges_ > 0 ? transfer_ns_ : busy_ ? compute_ns_ : waiting_ns_) += passed - waited;
}

}  // namespace skein::comm
