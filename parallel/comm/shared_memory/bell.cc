#include "parallel/comm/shared_memory/bell.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <climits>

namespace skein::comm {

void Bell::Ring() {
  // Sequentially consistent, as in Wait: either the waiter sees the count, or we see the waiter.
  count_.fetch_add(1);
  if (waiters_.load() == 0) return;
  syscall(SYS_futex, &count_, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

void Bell::Wait(uint32_t seen, absl::Duration limit) {
  const timespec timeout = absl::ToTimespec(std::max(limit, absl::ZeroDuration()));
  waiters_.fetch_add(1);
  if (count_.load() == seen) {
    syscall(SYS_futex, &count_, FUTEX_WAIT, seen, &timeout, nullptr, 0);
  }
  waiters_.fetch_sub(1);
}

}  // namespace skein::comm
