#include "worker/engine/device_watch.h"

#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"

namespace skein::worker {

DeviceWatch::DeviceWatch(const kernels::Executable* executable,
                         std::function<void(const absl::Status&)> on_failure,
                         const DeviceWatchOptions& options)
    : executable_(executable),
      on_failure_(std::move(on_failure)),
      options_(options),
      looks_([this] { Look(); }),
      times_([this] { TimeLooks(); }) {}

DeviceWatch::~DeviceWatch() {
  {
    MutexLock lock(&mutex_);
    ended_ = true;
    changed_.NotifyAll();
  }
  looks_.join();
  times_.join();
}

void DeviceWatch::Sleep() {
  changed_.WaitUntil(
      &mutex_, std::chrono::steady_clock::now() + absl::ToChronoNanoseconds(options_.interval));
}

void DeviceWatch::Look() {
  absl::Status health;
  while (health.ok()) {
    {
      MutexLock lock(&mutex_);
      if (!ended_) Sleep();
      if (ended_) return;
      asked_ = std::chrono::steady_clock::now();
    }
    health = executable_->Health();
    if (health.ok() && options_.tracker != nullptr) options_.tracker->LookAtDevices();
    MutexLock lock(&mutex_);
    asked_.reset();
    changed_.NotifyAll();
  }
  Tell(health);
}

void DeviceWatch::TimeLooks() {
  {
    MutexLock lock(&mutex_);
    do {
      if (ended_ && !asked_.has_value()) return;
      Sleep();
    } while (!asked_.has_value() ||
             absl::FromChrono(std::chrono::steady_clock::now() - *asked_) < options_.patience);
  }
  const std::string newest = executable_->Newest();
  Tell(absl::UnavailableError(absl::StrCat(newest, newest.empty() ? "" : ", or one before: ",
                                           "the device's driver has not answered for ",
                                           absl::FormatDuration(options_.patience))));
}

void DeviceWatch::Tell(const absl::Status& why) {
  {
    MutexLock lock(&mutex_);
    if (std::exchange(told_, true)) return;
  }
  on_failure_(why);
}

}  // namespace skein::worker
