// Where a replica's leader finds what has happened: requests from the network, results from the
// ranks. Filled by any thread, emptied by the one that schedules.
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

// Of a request, or of one of its answers.
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
    bool cancel_all = false;  // before `requests`: they came later
    uint64_t epoch = 0;       // of the coordinator that sent `requests`: see NewEpoch
    bool stop = false;        // finish nothing, leave the loop
  };

  void Submit(serving::Request request);
  void Cancel(serving::RequestId id, std::optional<int32_t> answer = std::nullopt);
  // The coordinator that sent the requests so far is gone: drops them all, without a word to
  // anyone. What comes from here on has the number that this returns, one more than what came
  // before. A report carries the number of the requests that it is of, so that no answer to the old
  // coordinator's requests, whose ids a new one uses again, reaches the new one.
  uint64_t NewEpoch();
  // What came since the last call was one message of the coordinator's.
  void EndMessage();
  // Of this epoch: messages, and those of them that Take has given out. Waits for no other thread:
  // a heartbeat asks, which is to leave also where the one that schedules is stuck.
  uint64_t messages() const { return messages_; }
  uint64_t messages_taken() const { return messages_taken_; }
  void Deliver(StepResult result);
  void Stop();

  // Everything since the last Take; sleeps until there is something or the deadline has passed.
  // After Stop it never sleeps, unless `stopping`. Strikes `beat`, which may be null, before, after
  // and while it sleeps.
  Contents Take(std::chrono::steady_clock::time_point deadline, bool stopping = false,
                ThreadBeats::Beat* beat = nullptr);

 private:
  bool HasSomething() const ABSL_SHARED_LOCKS_REQUIRED(mutex_);

  mutable Mutex mutex_;
  CondVar changed_;
  Contents contents_ ABSL_GUARDED_BY(mutex_);
  // Of this epoch; written under the mutex.
  std::atomic<uint64_t> messages_ = 0;
  std::atomic<uint64_t> messages_taken_ = 0;
};

}  // namespace skein::worker
