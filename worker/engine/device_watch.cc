#include "worker/engine/device_watch.h"

#include <chrono>
#include <utility>

namespace skein::worker {

DeviceWatch::DeviceWatch(const kernels::Executable* executable,
                         std::function<void(const absl::Status&)> on_failure,
                         absl::Duration interval)
    : executable_(executable),
      on_failure_(std::move(on_failure)),
      thread_([this, interval] { Look(interval); }) {}

DeviceWatch::~DeviceWatch() {
  {
    MutexLock lock(&mutex_);
    ended_ = true;
    changed_.NotifyAll();
  }
  thread_.join();
}

void DeviceWatch::Look(absl::Duration interval) {
  absl::Status health;
  {
    MutexLock lock(&mutex_);
    while (!ended_ && health.ok()) {
      changed_.WaitUntil(&mutex_,
                         std::chrono::steady_clock::now() + absl::ToChronoNanoseconds(interval));
      if (!ended_) health = executable_->Health();
    }
  }
  if (!health.ok()) on_failure_(health);
}

}  // namespace skein::worker
