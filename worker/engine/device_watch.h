// Looks whether the own device has failed while the thread that uses it waits for another rank, or
// for an order: nobody else would look. Asks it, too, how far its calls are, which heartbeats tell.
#pragma once

#include <functional>
#include <optional>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/mutex.h"
#include "kernels/ops/backend.h"
#include "parallel/comm/operation_tracker.h"
#include "parallel/comm/patience.h"

namespace skein::worker {

struct DeviceWatchOptions {
  const comm::OperationTracker* tracker = nullptr;  // may be null
  absl::Duration interval = absl::Milliseconds(200);
  // Until a driver that does not answer has failed. After some errors of a kernel its calls never
  // return, on any thread. As long as a rank may be silent: where another one is, whose sums hold
  // up this one's full queue, the coordinator names that one first.
  absl::Duration patience = absl::Seconds(3);
};

class DeviceWatch {
 public:
  // Calls `on_failure` once, on a thread of its own, within some intervals of a failure: with the
  // executable's Health, or with Unavailable, which names the newest batch, where the driver does
  // not answer. The executable is warm; it and the tracker outlive the watch.
  DeviceWatch(const kernels::Executable* executable,
              std::function<void(const absl::Status&)> on_failure,
              const DeviceWatchOptions& options = {});
  ~DeviceWatch();  // waits for a look under way, which may fail, and for on_failure
  DeviceWatch(const DeviceWatch&) = delete;

 private:
  // Sleeps for an interval, or until something changes.
  void Sleep() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Look();
  void TimeLooks();
  void Tell(const absl::Status& why);

  const kernels::Executable* const executable_;
  const std::function<void(const absl::Status&)> on_failure_;
  const DeviceWatchOptions options_;
  Mutex mutex_;
  CondVar changed_;
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
  bool told_ ABSL_GUARDED_BY(mutex_) = false;
  std::optional<comm::SteadyTime> asked_ ABSL_GUARDED_BY(mutex_);  // the look under way
  // The last ones: they use the others.
  std::thread looks_;
  std::thread times_;
};

}  // namespace skein::worker
