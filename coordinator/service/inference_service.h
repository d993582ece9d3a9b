// The public service, without its transport.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/clock.h"
#include "coordinator/service/generation.h"
#include "coordinator/service/model_registry.h"
#include "coordinator/service/request.h"
#include "coordinator/service/request_observer.h"
#include "coordinator/service/served_model.h"
#include "coordinator/service/validation.h"

namespace skein::coordinator {

class KeptAnswers;

// Thread-safe. Models, clock and observer outlive it.
class InferenceService {
 public:
  // `of_no_model` is told of requests that name no model that is served.
  InferenceService(const ModelRegistry* models, const Clock* clock,
                   RequestObserver* of_no_model = &RequestObserver::None())
      : models_(models), clock_(clock), of_no_model_(of_no_model) {}

  // Finds the model, validates, tokenizes and admits. An error means that nothing was begun; codes
  // are those of ModelRegistry::Find, Validate and Dispatcher::Admit. `on_ready` may be called
  // before this returns; see Generation and Dispatcher for what it may do. A generation keeps its
  // model. It is done for CallRecord::Current().
  absl::StatusOr<std::shared_ptr<Generation>> Generate(const GenerateRequest& request,
                                                       Generation::OnReady on_ready);
  // Its steps apart, for who keeps answers: what is made is not admitted yet. No `public_id`: one
  // of its own.
  absl::StatusOr<HostedModel> Find(const std::string& model);
  absl::StatusOr<ValidRequest> Check(const HostedModel& hosted, const GenerateRequest& request);
  std::shared_ptr<Generation> Make(const HostedModel& hosted, ValidRequest valid,
                                   std::string public_id, Generation::OnReady on_ready);
  // Of a call of which something was admitted before, the others: its rest is taken where new
  // requests are Unavailable, too, and waits for a replica.
  enum class IfFull {
    kRefuse,
    kTell,    // ResourceExhausted, too, but no refusal: the caller tries again
    kExceed,  // it is taken beyond the queue's limit
  };
  absl::Status Admit(const HostedModel& hosted, const std::shared_ptr<Generation>& generation,
                     IfFull if_full = IfFull::kRefuse);
  // See Dispatcher.
  void Readmit(const HostedModel& hosted, const std::shared_ptr<Generation>& generation,
               absl::Duration patience);

  // Ends generations whose client wants no more, without an event.
  void Cancel(const std::vector<std::shared_ptr<Generation>>& generations);

  const ModelRegistry& models() const { return *models_; }

  // Keeps streams for clients that come back; null: nobody does. Set before requests come.
  KeptAnswers* kept() const { return kept_; }
  void KeepBy(KeptAnswers* kept) { kept_ = kept; }

 private:
  const ModelRegistry* const models_;
  const Clock* const clock_;
  RequestObserver* const of_no_model_;
  const std::string instance_ = NewInstance();  // tells this coordinator's request ids from others'
  std::atomic<uint64_t> next_id_{1};
  KeptAnswers* kept_ = nullptr;

  static std::string NewInstance();
};

}  // namespace skein::coordinator
