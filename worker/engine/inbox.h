// Where a replica's requests wait for its leader: filled by the network's threads, emptied by the
// engine's.
#pragma once

#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "worker/engine/request.h"

namespace skein::worker {

// Thread-safe.
class Inbox {
 public:
  struct Contents {
    std::vector<GenerationRequest> requests;
    std::vector<RequestId> cancelled;
    bool cancel_all = false;  // before `requests`: they came later
    bool stop = false;        // finish nothing, leave the loop
  };

  void Submit(GenerationRequest request);
  void Cancel(RequestId id);
  // Drops every request so far, without a word to anyone: the coordinator that sent them is gone.
  void CancelAll();
  void Stop();

  // Everything since the last Take. With `wait`, sleeps until there is something.
  Contents Take(bool wait);

 private:
  bool HasSomething() const ABSL_SHARED_LOCKS_REQUIRED(mutex_);

  absl::Mutex mutex_;
  Contents contents_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace skein::worker
