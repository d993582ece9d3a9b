// Ctrl-C as a call to cancel.
#pragma once

#include <signal.h>

#include <functional>
#include <stop_token>
#include <thread>

namespace skein::client {

// While it lives, SIGINT and SIGTERM call `on_signal` on a thread of its own instead of ending the
// process. Make it before other threads start: they inherit the mask.
class InterruptGuard {
 public:
  explicit InterruptGuard(std::function<void()> on_signal);
  ~InterruptGuard();

 private:
  sigset_t signals_;
  sigset_t before_;
  std::jthread waiter_;
};

}  // namespace skein::client
