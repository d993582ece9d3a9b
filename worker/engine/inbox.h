// Holds what has happened for a replica's leader: requests from the network, results from the
// ranks. Any thread fills it; the one that schedules empties it.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "base/mutex.h"
#include "serving/request.h"
#include "worker/engine/step_order.h"
#include "worker/engine/thread_beats.h"

namespace skein::worker {

// Cancels a request, or one of its answers.
struct Cancellation {
  serving::RequestId id;
  std::optional<int32_t> answer;  // index
};

// Thread-safe.
class Inbox {
 public:
  struct Contents {
    std::vector<serving::Request> requests;
    std::vector<Cancellation> cancelled;
    std::vector<StepResult> results;
    bool cancel_all = false;  // comes before `requests`, which are later
    uint64_t epoch = 0;       // epoch of the coordinator that sent `requests`: see NewEpoch
    bool stop = false;        // finish nothing, leave the loop
  };

  void Submit(serving::Request request);
  void Cancel(serving::RequestId id, std::optional<int32_t> answer = std::nullopt);
  // Begins a new epoch, since the coordinator that sent the requests so far is gone: drops them
  // all, without a word to anyone. Returns the epoch of what comes from here on, one more than that
  // of what came before. A report carries the epoch of its requests, so that no answer to the old
  // coordinator's requests, whose ids a new one uses again, reaches the new one.
  uint64_t NewEpoch();
  // Marks all that came since the last call as one message of the coordinator's.
  void EndMessage();
  // Count the messages of this epoch, and those of them that Take has given out. They wait for no
  // other thread: heartbeats ask, which must leave even where the thread that schedules is stuck.
  uint64_t messages() const { return messages_; }
  uint64_t messages_taken() const { return messages_taken_; }
  void Deliver(StepResult result);
  void Stop();

  // Returns everything since the last Take; sleeps until there is something or the deadline has
  // passed. After Stop it never sleeps, unless `stopping`. Strikes `beat`, which may be null,
  // before, after and while it sleeps.
  Contents Take(std::chrono::steady_clock::time_point deadline, bool stopping = false,
                ThreadBeats::Beat* beat = nullptr);

 private:
  bool HasSomething() const ABSL_SHARED_LOCKS_REQUIRED(mutex_);

  mutable Mutex mutex_;
  CondVar changed_;
  Contents contents_ ABSL_GUARDED_BY(mutex_);
  // They count in this epoch, and are written under the mutex.
  std::atomic<uint64_t> messages_ = 0;
  std::atomic<uint64_t> messages_taken_ = 0;
};

}  // namespace skein::worker
