// Tells when a thread that waits inside a call last looked for its peers.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace skein::comm {

// Beaten by one thread, read by any. A beat costs a look at the clock, which it returns, and a
// store.
class Pulse {
 public:
  int64_t Beat() {
    const int64_t now_ns = NowNs();
    last_ns_.store(now_ns, std::memory_order_relaxed);
    return now_ns;
  }
  // The time of the last beat on the steady clock, in ns; 0 before the first beat.
  int64_t last_ns() const { return last_ns_.load(std::memory_order_relaxed); }

  static int64_t NowNs() {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(
               std::chrono::steady_clock::now().time_since_epoch())
        .count();
  }

 private:
  std::atomic<int64_t> last_ns_ = 0;
};

}  // namespace skein::comm
