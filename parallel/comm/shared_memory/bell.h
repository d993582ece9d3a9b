// A futex that lives in shared memory: one rank sleeps on it, others wake it.
#pragma once

#include <atomic>
#include <cstdint>

#include "absl/time/time.h"

namespace skein::comm {

// Zeroed memory is a valid Bell, and each has a cache line of its own. To miss nothing, read Count,
// look for work, and Wait for another count.
class alignas(64) Bell {
 public:
  uint32_t Count() const { return count_.load(std::memory_order_acquire); }
  // Wakes all waiters. Makes a system call only when there is one.
  void Ring();
  // At this moment.
  bool HasWaiters() const { return waiters_.load(std::memory_order_relaxed) != 0; }
  // Sleeps while the count is `seen`, at most for `limit`. May return early.
  void Wait(uint32_t seen, absl::Duration limit);

 private:
  std::atomic<uint32_t> count_ = 0;
  std::atomic<uint32_t> waiters_ = 0;
};

static_assert(std::atomic<uint32_t>::is_always_lock_free, "a Bell is shared between processes");

}  // namespace skein::comm
