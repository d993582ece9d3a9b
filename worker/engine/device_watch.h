// Looks whether the own device has failed while the thread that uses it waits for another rank, or
// for an order: nobody else would look.
#pragma once

#include <functional>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/mutex.h"
#include "kernels/ops/backend.h"

namespace skein::worker {

class DeviceWatch {
 public:
  // Calls `on_failure` once, on a thread of its own, within some `interval` of a failure. The
  // executable is warm, and outlives the watch.
  DeviceWatch(const kernels::Executable* executable,
              std::function<void(const absl::Status&)> on_failure,
              absl::Duration interval = absl::Milliseconds(200));
  ~DeviceWatch();  // waits for a call under way
  DeviceWatch(const DeviceWatch&) = delete;

 private:
  void Look(absl::Duration interval);

  const kernels::Executable* const executable_;
  const std::function<void(const absl::Status&)> on_failure_;
  Mutex mutex_;
  CondVar changed_;
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;  // the last one: it uses the others
};

}  // namespace skein::worker
