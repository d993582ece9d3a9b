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

namespace skein::coordinator {

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
  // model.
  absl::StatusOr<std::shared_ptr<Generation>> Generate(const GenerateRequest& request,
                                                       Generation::OnReady on_ready);
  // Ends generations whose client wants no more, without an event.
  void Cancel(const std::vector<std::shared_ptr<Generation>>& generations);

  const ModelRegistry& models() const { return *models_; }

 private:
  absl::StatusOr<std::shared_ptr<Generation>> Begin(const HostedModel& hosted,
                                                    const GenerateRequest& request,
                                                    Generation::OnReady on_ready);

  const ModelRegistry* const models_;
  const Clock* const clock_;
  RequestObserver* const of_no_model_;
  const std::string instance_ = NewInstance();  // tells this coordinator's request ids from others'
  std::atomic<uint64_t> next_id_{1};

  static std::string NewInstance();
};

}  // namespace skein::coordinator
