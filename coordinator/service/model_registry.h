// The models that a coordinator serves, by name.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "coordinator/service/dispatcher.h"
#include "coordinator/service/request_observer.h"
#include "coordinator/service/served_model.h"

namespace skein::coordinator {

// A model with what is its own. A copy keeps all of it but the observer, also after the model was
// removed.
struct HostedModel {
  std::shared_ptr<const ServedModel> model;
  std::shared_ptr<Dispatcher> dispatcher;
  RequestObserver* observer = &RequestObserver::None();  // outlives every copy

  // "waiting for workers", "serving" or "draining".
  const char* state() const;
};

// Thread-safe.
class ModelRegistry {
 public:
  static constexpr char kLoading[] = "loading";

  // By one of its names; "": the only model. InvalidArgument: there are several, and no name.
  // NotFound names those that are there, and Unavailable one that is being loaded.
  absl::StatusOr<HostedModel> Find(std::string_view name) const;
  // In the order in which they were added.
  std::vector<HostedModel> All() const;

  // Takes names for a model that is about to be loaded; Add or Release end that. AlreadyExists: one
  // is another's.
  absl::Status Reserve(const std::vector<std::string>& names);
  void Release(const std::vector<std::string>& names);
  // The first name of each that is being loaded.
  std::vector<std::string> Loading() const;

  // AlreadyExists: one of its names is another model's.
  absl::Status Add(HostedModel model);
  // By its first name.
  void Remove(const std::string& name);

  // Of all models.
  Dispatcher::Counts counts() const;
  bool serving() const;  // any of them

 private:
  absl::Status CheckFree(const std::vector<std::string>& names) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  mutable Mutex mutex_;
  std::vector<HostedModel> models_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::vector<std::string>> loading_ ABSL_GUARDED_BY(mutex_);  // their names
};

// "'bard', 'chat'", for people; "no model" where there is none.
std::string NamesOf(const std::vector<HostedModel>& models);

}  // namespace skein::coordinator
