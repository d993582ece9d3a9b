// One answer that is kept for clients that come back: the events that its client is told, in one
// sequence, each of them in the journal before anybody is told of it.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "coordinator/journal/journal.h"
#include "coordinator/service/answer_codec.h"
#include "coordinator/service/generation.h"
#include "coordinator/service/request.h"
#include "coordinator/service/served_model.h"

namespace skein::coordinator {

class InferenceService;
class KeptReader;

// Who asked, and for what, as far as going on needs it.
struct KeptHead {
  std::string id;               // by which clients come back; hard to guess
  std::string route;            // of HTTP: "/v1/chat/completions"; gRPC: ""
  std::string body;             // of HTTP: as it was sent
  std::string key;              // name of the API key; "": none
  std::string model, identity;  // that answer
  absl::Time arrived = absl::InfinitePast();
  std::vector<std::string> requests;  // EncodeRequest, by part
};
std::string EncodeHead(const KeptHead& head);
// FailedPrecondition: of another version; DataLoss: these are no bytes of EncodeHead.
absl::StatusOr<KeptHead> DecodeHead(const std::string& bytes);

// Collects the events of one or more generations, its parts, as they are ready. An event's number
// is its place in the sequence. Thread-safe.
class KeptAnswer : public std::enable_shared_from_this<KeptAnswer> {
 public:
  struct Context {
    Journal* journal = nullptr;
    const Clock* clock = nullptr;
    absl::Duration window;
    struct Shared {
      std::atomic<int64_t> total_bytes = 0;  // of all kept answers
      // The coordinator ends: what its end does to an answer is not kept, and its reader is told to
      // come back to the next one.
      std::atomic<bool> draining = false;
    };
    std::shared_ptr<Shared> shared;
  };
  // Told of tokens as they are made.
  using Count = std::function<void(int64_t tokens)>;

  // `number`: in the journal. `model`: null where the one that began it is not served any more.
  KeptAnswer(Context context, int64_t number, KeptHead head, InferenceService* service,
             std::shared_ptr<const ServedModel> model);
  ~KeptAnswer();

  const KeptHead& head() const { return head_; }
  int64_t number() const { return number_; }
  const std::shared_ptr<const ServedModel>& model() const { return model_; }

  // Before Start: a part's generation is made with OnReady, then given.
  Generation::OnReady OnReady();
  void Add(std::shared_ptr<Generation> generation);
  // What an earlier process has kept; before Start.
  absl::Status Restore(const std::vector<std::string>& records);
  // Of one part, of what was restored.
  std::vector<Event> EventsOf(int32_t part) const;
  // From now on events are taken.
  void Start(Count count);

  // The answer's next reader: one before it is told that it has been displaced. Events before
  // `from` are not told. OutOfRange: there are not so many.
  absl::StatusOr<std::unique_ptr<KeptReader>> Read(int64_t from, std::function<void()> wake);

  // Nobody reads it, and has not for the window.
  bool expired() const;
  // All of it is there, and nobody reads it; since when.
  std::optional<absl::Time> finished() const;
  // Ends its generations, where they run. Not from within the dispatcher, as the next one.
  void Cancel();
  // Cancels, and takes nothing more; its reader is told. Its bytes count no more.
  void Drop();
  // A part failed while others run on: Cancel is due, of which it is told once.
  bool TakeFailure();

 private:
  friend class KeptReader;

  void Collect();
  // Whether its reader is to be woken.
  bool CollectLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Note(const Event& event) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Write(std::vector<std::string> records) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void OnWritten(size_t upto);
  void Wake();
  void Leave(uint64_t reader);

  const Context context_;
  const int64_t number_;
  const KeptHead head_;
  InferenceService* const service_;
  const std::shared_ptr<const ServedModel> model_;
  std::vector<std::shared_ptr<Generation>> generations_;  // by part; fixed once it is started

  mutable Mutex mutex_;
  bool started_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::string> records_ ABSL_GUARDED_BY(mutex_);
  size_t kept_ ABSL_GUARDED_BY(mutex_) = 0;  // of them, that may be told
  int64_t bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  size_t unaccepted_ ABSL_GUARDED_BY(mutex_);  // parts of which no event came
  int64_t open_ ABSL_GUARDED_BY(mutex_) = 0;   // answers of the others
  bool complete_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status error_ ABSL_GUARDED_BY(mutex_);  // its last event
  bool suspended_ ABSL_GUARDED_BY(mutex_) = false;
  bool dropped_ ABSL_GUARDED_BY(mutex_) = false;
  bool failure_told_ ABSL_GUARDED_BY(mutex_) = false;  // by TakeFailure
  Count count_ ABSL_GUARDED_BY(mutex_);                // until it is complete

  uint64_t reader_ ABSL_GUARDED_BY(mutex_) = 0;  // the last one's number
  bool has_reader_ ABSL_GUARDED_BY(mutex_) = false;
  std::function<void()> wake_ ABSL_GUARDED_BY(mutex_);
  absl::Time since_ ABSL_GUARDED_BY(mutex_);  // that nobody reads it
};

// Tells one client the events. When it goes, the answer goes on for the window. Next is called by
// one thread at a time.
class KeptReader {
 public:
  KeptReader(std::shared_ptr<KeptAnswer> answer, uint64_t number, int64_t from)
      : answer_(std::move(answer)), number_(number), next_(static_cast<size_t>(from)) {}
  ~KeptReader() { answer_->Leave(number_); }
  KeptReader(const KeptReader&) = delete;

  struct Told {
    std::optional<PartEvent> event;
    // Nothing comes behind it. `why`: the error that the answer ended with, or, where there is no
    // event, why no more is told here: Aborted: another reader is; Cancelled: it was discarded;
    // Unavailable: the coordinator ends, and a client may come back to the next one.
    bool over = false;
    absl::Status why;
  };
  // Neither event nor over: nothing yet; `wake` is called when there may be.
  Told Next();

  const std::shared_ptr<KeptAnswer>& shared_answer() const { return answer_; }

 private:
  const std::shared_ptr<KeptAnswer> answer_;
  const uint64_t number_;
  size_t next_;
};

}  // namespace skein::coordinator
