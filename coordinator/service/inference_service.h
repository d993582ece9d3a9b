// The public service, without its transport.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/clock.h"
#include "coordinator/service/dispatcher.h"
#include "coordinator/service/generation.h"
#include "coordinator/service/request.h"
#include "coordinator/service/request_observer.h"
#include "coordinator/service/served_model.h"

namespace skein::coordinator {

// Thread-safe. Model, dispatcher, clock and observer outlive it.
class InferenceService {
 public:
  InferenceService(const ServedModel* model, Dispatcher* dispatcher, const Clock* clock,
                   RequestObserver* observer = &RequestObserver::None());

  // Validates, tokenizes and admits. An error means that nothing was begun; codes are those of
  // Validate and Dispatcher::Admit. `on_ready` may be called before this returns; see Generation
  // and Dispatcher for what it may do.
  absl::StatusOr<std::shared_ptr<Generation>> Generate(const GenerateRequest& request,
                                                       Generation::OnReady on_ready);
  // Ends generations whose client wants no more, without an event.
  void Cancel(const std::vector<std::shared_ptr<Generation>>& generations);

  const ServedModel& model() const { return *model_; }
  bool serving() const { return dispatcher_->serving(); }

 private:
  absl::StatusOr<std::shared_ptr<Generation>> Begin(const GenerateRequest& request,
                                                    Generation::OnReady on_ready);

  const ServedModel* const model_;
  Dispatcher* const dispatcher_;
  const Clock* const clock_;
  RequestObserver* const observer_;
  const std::string instance_;  // tells this coordinator's request ids from another's
  std::atomic<uint64_t> next_id_{1};
};

}  // namespace skein::coordinator
