// Ends a warm-up that hangs, in words that tell whose it is.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <string_view>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/mutex.h"
#include "parallel/comm/operation_tracker.h"

namespace skein::worker {

// Made as ranks begin to warm up, all at about the same time. A rank that is not over by the
// deadline calls `on_late`: at once where it waits for no other rank, and so is the one that hangs;
// some seconds later where it does, so that the other one speaks first.
class WarmUpWatch {
 public:
  static constexpr absl::Duration kGrace = absl::Seconds(5);

  // `tracker` outlives the watch. `on_late` is called once, on a thread of its own.
  WarmUpWatch(const comm::OperationTracker* tracker, absl::Duration timeout,
              std::function<void(const absl::Status&)> on_late);
  ~WarmUpWatch();  // the warm-up is over
  WarmUpWatch(const WarmUpWatch&) = delete;

  // What the rank does from now on: "capturing the graph of 64 rows". Any thread.
  void Enter(std::string_view stage);

 private:
  using SteadyTime = std::chrono::steady_clock::time_point;

  void Wait();
  // False when the warm-up is over before.
  bool SleepUntil(SteadyTime time);
  absl::Status Late(const comm::Progress& progress);

  const comm::OperationTracker* const tracker_;
  const absl::Duration timeout_;
  const std::function<void(const absl::Status&)> on_late_;
  Mutex mutex_;
  CondVar changed_;
  bool over_ ABSL_GUARDED_BY(mutex_) = false;
  std::string stage_ ABSL_GUARDED_BY(mutex_) = "beginning";
  SteadyTime since_ ABSL_GUARDED_BY(mutex_) = std::chrono::steady_clock::now();
  std::thread thread_;  // the last one: it uses the others
};

}  // namespace skein::worker
