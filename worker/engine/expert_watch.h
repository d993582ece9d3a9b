// Where heartbeats find how evenly a rank's rows choose experts.
#pragma once

#include <optional>

#include "absl/base/thread_annotations.h"
#include "base/expert_load.h"
#include "base/mutex.h"
#include "kernels/ops/backend.h"

namespace skein::worker {

// Any thread.
class ExpertWatch {
 public:
  // The executable outlives whoever reads.
  void Watch(const kernels::Executable* executable) {
    MutexLock lock(&mutex_);
    executable_ = executable;
  }
  std::optional<ExpertLoad> Read() const {
    MutexLock lock(&mutex_);
    if (executable_ == nullptr) return std::nullopt;
    return executable_->expert_load();
  }

 private:
  mutable Mutex mutex_;
  const kernels::Executable* executable_ ABSL_GUARDED_BY(mutex_) = nullptr;
};

}  // namespace skein::worker
