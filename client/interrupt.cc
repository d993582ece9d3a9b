#include "client/interrupt.h"

#include <ctime>
#include <utility>

namespace skein::client {

InterruptGuard::InterruptGuard(std::function<void()> on_signal) {
  sigemptyset(&signals_);
  sigaddset(&signals_, SIGINT);
  sigaddset(&signals_, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &signals_, &before_);
  waiter_ = std::jthread([this, on_signal = std::move(on_signal)](const std::stop_token& stop) {
    constexpr timespec kLook = {.tv_sec = 0, .tv_nsec = 50'000'000};  // for the end of the guard
    while (!stop.stop_requested()) {
      if (sigtimedwait(&signals_, nullptr, &kLook) > 0) on_signal();
    }
  });
}

InterruptGuard::~InterruptGuard() {
  waiter_.request_stop();
  waiter_.join();
  pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

}  // namespace skein::client
