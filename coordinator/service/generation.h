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
#include "base/log/log_fields.h"
#include "base/mutex.h"
#include "coordinator/service/answer_text.h"
#include "coordinator/service/call_record.h"
#include "coordinator/service/request.h"
#include "coordinator/service/request_observer.h"
#include "coordinator/service/served_model.h"
#include "coordinator/service/validation.h"
#include "serving/output.h"
#include "serving/request.h"

namespace skein::coordinator {

// Holds the journal: prompt, sampling, and every token of every answer so far. From it another
// replica goes on where a lost one stopped; the client sees nothing of it, since text, stop strings
// and unfinished characters are here, too.
//
// Thread-safe. The dispatcher feeds it, its client takes events from it. What the client has not
// taken piles up in one event an answer (several when they would be very large), and an answer
// never holds more than max_tokens tokens.
class Generation {
 public:
  // Called, without locks of this class, when Next() may have something new. kMore: there will
  // be more at once, for this client or others, and kAll after it: what came together can go out
  // together.
  enum class Ready { kMore, kAll };
  using OnReady = std::function<void(Ready)>;

  // Model, clock and observer outlive the generation. Answers are numbered from 0. It is the call's
  // of CallRecord::Current(), where there is one.
  Generation(serving::RequestId id, std::string public_id, ValidRequest valid,
             const ServedModel* model, const Clock* clock, OnReady on_ready,
             RequestObserver* observer = &RequestObserver::None());

  // Stands where an earlier process left it, which had told `events`; what has not ended counts as
  // admitted here, too. Before anything else.
  void Restore(absl::Time arrived, const std::vector<Event>& events);

  // For the client: the next event, or nothing yet; answers take turns. After the last answer's
  // Finished, or an error: nothing.
  std::optional<Event> Next();

  // For the dispatcher.
  serving::RequestId id() const { return request_.id; }
  const std::string& public_id() const { return public_id_; }
  const ServedModel& model() const { return *model_; }
  absl::Time arrived() const { return arrived_; }
  const LogFields& log_fields() const { return log_fields_; }   // of lines that concern it
  const serving::Request& request() const { return request_; }  // as it was asked for
  int64_t open_answers() const;                                 // that have not ended

  // What a replica is sent: the answers that are not finished, from where they stand.
  serving::Request Dispatch();
  enum class Progress {
    kRunning,
    kAnswerFinishedEarly,  // the replica must be told to stop this answer
    kFinished,             // the replica knows
    kFinishedEarly,        // the replica must be told to stop
  };
  // Whether a replica may say this next; see CheckOutput. What comes late, after the client's end
  // of an answer, is in order.
  absl::Status Check(const serving::AnswerOutput& output) const;
  // Of an output that Check has passed.
  Progress OnOutput(const serving::AnswerOutput& output);
  // The outputs of all requests of a step are in; OnOutput has said that there is more.
  void OnOutputsEnd() { on_ready_(Ready::kAll); }
  // The replica it was sent to is lost. True when another one is to go on. False when it has ended:
  // all tokens were there, or this was the last of `max_retries` retries in a row that gave none.
  bool OnReplicaLost(const absl::Status& why, int64_t max_retries);
  // Ends the request with an error. The first end counts.
  void Fail(const absl::Status& status);
  // Fails as Unavailable, saying how often it was retried.
  void GiveUp(const std::string& why);
  // Its client wants no more, and the dispatcher has let it go: no event, but the observer is told.
  // Fail may follow, for a client that waits for a word.
  void Abandon();

 private:
  struct Answer {
    std::vector<int32_t> journal;  // every token so far
    std::optional<float> mu;       // mirostat's state after it
    int64_t cached_tokens = 0;     // of the prompt, where it began
    AnswerText text;
    Tokens pending;
    bool ended = false;
    std::optional<Finished> finished;  // until it is taken
    std::optional<absl::Time> first_token;
    absl::Time last_token;  // valid with `first_token`
  };

  std::optional<Event> NextOf(Answer& answer) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Tokens::State StateOf(const Answer& answer) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Progress OnOutputLocked(const serving::AnswerOutput& output)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void AppendPromptLogprobs(const serving::AnswerOutput& output)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Up to the one that completes a stop string, or all.
  void AppendTokens(Answer& answer, const serving::AnswerOutput& output)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Append(Answer& answer, const serving::SampledToken& token, bool is_eos)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // `early`: the replica does not know.
  Progress End(Answer& answer, Finished::Reason reason, bool early)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void RestoreTokens(const Tokens& tokens) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Ends answers of which all has come but the word that they end.
  void EndWhatIsWhole() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void GiveUpLocked(const std::string& why) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Progress FailLocked(const absl::Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Tells the observer how all that is open ends; once.
  void TellEnd(RequestObserver::AnswerEnd end, absl::StatusCode code)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool IsEos(int32_t token) const;
  // Whether the answer is a vector, and its token nobody's business.
  bool embeds() const { return request_.pooling != serving::Pooling::kNone; }

  const std::string public_id_;
  const serving::Request request_;
  const bool normalized_;  // see ValidRequest
  const ServedModel* const model_;
  const Clock* const clock_;
  const OnReady on_ready_;
  RequestObserver* const observer_;
  absl::Time arrived_;                        // constant once others know of it
  const std::shared_ptr<CallRecord> record_;  // may be null
  const LogFields log_fields_;

  mutable Mutex mutex_;
  std::vector<Answer> answers_ ABSL_GUARDED_BY(mutex_);  // by index
  size_t open_ ABSL_GUARDED_BY(mutex_);                  // answers that have not ended
  size_t turn_ ABSL_GUARDED_BY(mutex_) = 0;              // the answer whose event comes next
  bool accepted_taken_ ABSL_GUARDED_BY(mutex_) = false;
  std::optional<absl::Status> error_ ABSL_GUARDED_BY(mutex_);  // until it is taken

  // The prompt's log probabilities; a second replica gives them from the start.
  size_t prompt_logprobs_ ABSL_GUARDED_BY(mutex_) = 0;        // that came
  size_t prompt_logprobs_known_ ABSL_GUARDED_BY(mutex_) = 0;  // of those to come

  std::optional<absl::Time> dispatched_ ABSL_GUARDED_BY(mutex_);
  int64_t dispatches_ ABSL_GUARDED_BY(mutex_) = 0;
  bool gave_tokens_ ABSL_GUARDED_BY(mutex_) = false;  // the last one
  bool has_tokens_ ABSL_GUARDED_BY(mutex_) = false;   // any of its answers
  bool end_told_ ABSL_GUARDED_BY(mutex_) = false;     // by TellEnd
  int64_t fruitless_ ABSL_GUARDED_BY(mutex_) = 0;     // in a row
};

}  // namespace skein::coordinator
