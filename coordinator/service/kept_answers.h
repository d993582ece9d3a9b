// All answers that are kept for clients that come back.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "coordinator/journal/journal.h"
#include "coordinator/service/inference_service.h"
#include "coordinator/service/kept_answer.h"
#include "coordinator/service/request.h"

namespace skein::coordinator {

// An answer stays until `window` has passed without a client that reads it, finished or not: then
// it is ended and forgotten. A client that goes away therefore stops nothing at once; Discard does.
// Thread-safe.
class KeptAnswers {
 public:
  struct Options {
    absl::Duration window = absl::Seconds(60);
    // Of all answers' events and requests, which are in memory, too. Beyond it finished answers are
    // forgotten, the oldest first; where that is not enough, new ones are not kept.
    int64_t max_bytes = int64_t{256} << 20;
  };
  // Journal and clock outlive it.
  KeptAnswers(Options options, Journal* journal, const Clock* clock);
  ~KeptAnswers();

  absl::Duration window() const { return options_.window; }

  // Whether the next answer can be kept: there is room, and the journal can be written.
  bool CanKeep();

  // Admits the requests, at least one and all for one model, whose events are one sequence, and
  // reads from its beginning. `head` lacks what the requests say, and may lack when they arrived.
  // `wake` may be called before this returns. Errors are those of InferenceService::Generate: then
  // nothing was begun. The service outlives this.
  absl::StatusOr<std::unique_ptr<KeptReader>> Begin(InferenceService* service,
                                                    const std::vector<GenerateRequest>& requests,
                                                    KeptHead head, std::function<void()> wake,
                                                    KeptAnswer::Count count = nullptr);

  // Who asks: an answer is told to the one whose key asked for it, and over HTTP what was asked for
  // over HTTP.
  struct Asker {
    bool http = false;
    std::string key;
  };
  // NotFound: there is no such answer of this asker. See FindKept.
  absl::StatusOr<std::shared_ptr<KeptAnswer>> Find(std::string_view id, const Asker& asker) const;
  // Its client wants no more: ends it, where it runs, and forgets it.
  void Discard(const std::shared_ptr<KeptAnswer>& answer);

  // Goes on with what an earlier process has left: what is not finished waits for a replica.
  // Before anything else, but once the models are there. The service outlives this.
  void Restore(InferenceService* service);
  // Forgets what nobody came for. Call it several times a second.
  void Tick();
  // The coordinator ends: answers that do not come to their end stay in the journal as they are.
  // Before Dispatcher::StartDrain.
  void StartDrain() { shared_->draining = true; }

 private:
  KeptAnswer::Context Context() { return {journal_, clock_, options_.window, shared_}; }
  absl::Status RestoreOne(Journal::Left& left, InferenceService* service);
  std::vector<std::shared_ptr<KeptAnswer>> All() const;
  void Insert(const std::shared_ptr<KeptAnswer>& answer);

  const Options options_;
  Journal* const journal_;
  const Clock* const clock_;
  const std::shared_ptr<KeptAnswer::Context::Shared> shared_ =
      std::make_shared<KeptAnswer::Context::Shared>();
  mutable Mutex mutex_;
  std::map<std::string, std::shared_ptr<KeptAnswer>, std::less<>> answers_
      ABSL_GUARDED_BY(mutex_);  // by id
};

// The service's. NotFound, too, where nothing is kept.
absl::StatusOr<std::shared_ptr<KeptAnswer>> FindKept(const InferenceService& service,
                                                     std::string_view id,
                                                     const KeptAnswers::Asker& asker = {});

}  // namespace skein::coordinator
