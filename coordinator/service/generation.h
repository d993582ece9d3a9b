// One request from admission to its last event.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "coordinator/cluster/messages.h"
#include "coordinator/service/answer_text.h"
#include "coordinator/service/request.h"
#include "coordinator/service/served_model.h"
#include "coordinator/service/validation.h"

namespace skein::coordinator {

// Thread-safe. The dispatcher feeds it, its client takes events from it. What the client has not
// taken piles up in one event (two when it would be very large), and a request never holds more
// than max_tokens tokens.
class Generation {
 public:
  // `on_ready` is called, without locks of this class, when Next() may have something new. Model
  // and clock outlive the generation.
  Generation(uint64_t id, std::string public_id, ValidRequest valid, const ServedModel* model,
             const Clock* clock, std::function<void()> on_ready);

  // For the client: the next event, or nothing yet. After Finished or an error: nothing.
  std::optional<Event> Next();

  // For the dispatcher.
  uint64_t id() const { return request_.id; }
  const std::string& public_id() const { return public_id_; }
  // Prompt, limits and sampling: what a replica is sent.
  const NewRequest& request() const { return request_; }
  // The tokens that this request may take, at most: what replicas are weighed by.
  int64_t cost() const {
    return static_cast<int64_t>(request_.prompt.size()) + request_.max_tokens;
  }

  void OnDispatched();
  enum class Progress {
    kRunning,
    kFinished,       // the replica knows
    kFinishedEarly,  // the replica must be told to stop
  };
  Progress OnOutput(const SequenceOutput& output);
  // Ends the answer with an error. The first end counts.
  void Fail(const absl::Status& status);

 private:
  Tokens TakePending() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Append(const OutputToken& token, bool with_text) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void End(Finished::Reason reason) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Progress OnOutputLocked(const SequenceOutput& output) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::string public_id_;
  const NewRequest request_;  // the journal's first half: the prompt
  const ServedModel* const model_;
  const Clock* const clock_;
  const std::function<void()> on_ready_;
  const absl::Time arrived_;

  mutable Mutex mutex_;
  std::vector<int32_t> journal_ ABSL_GUARDED_BY(mutex_);  // every token of the answer so far
  AnswerText text_ ABSL_GUARDED_BY(mutex_);
  bool accepted_taken_ ABSL_GUARDED_BY(mutex_) = false;
  Tokens pending_ ABSL_GUARDED_BY(mutex_);
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
  std::optional<Event> end_ ABSL_GUARDED_BY(mutex_);  // until it is taken
  std::optional<absl::Time> dispatched_ ABSL_GUARDED_BY(mutex_);
  std::optional<absl::Time> first_token_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace skein::coordinator
