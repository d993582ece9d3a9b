#include "coordinator/service/model_registry.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/printable.h"
#include "base/status_macros.h"

namespace skein::coordinator {
namespace {

bool Has(const std::vector<std::string>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

}  // namespace

const char* HostedModel::state() const {
  if (dispatcher->draining()) return "draining";
  return dispatcher->serving() ? "serving" : "waiting for workers";
}

absl::StatusOr<HostedModel> ModelRegistry::Find(std::string_view name) const {
  MutexLock lock(&mutex_);
  if (name.empty() && models_.size() == 1) return models_.front();
  if (name.empty() && !models_.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("model: is missing, and there are several: ", NamesOf(models_)));
  }
  for (const HostedModel& hosted : models_) {
    if (HasName(*hosted.model, name)) return hosted;
  }
  const std::string quoted = Printable(name, kMaxNameBytes);
  for (const std::vector<std::string>& names : loading_) {
    if (!Has(names, name)) continue;
    return absl::UnavailableError(
        absl::StrCat("model '", quoted, "' is being loaded; try again later"));
  }
  return absl::NotFoundError(absl::StrCat("model: '", quoted, "' is not served here; ",
                                          NamesOf(models_), models_.size() > 1 ? " are" : " is"));
}

std::vector<HostedModel> ModelRegistry::All() const {
  MutexLock lock(&mutex_);
  return models_;
}

absl::Status ModelRegistry::CheckFree(const std::vector<std::string>& names) const {
  for (size_t i = 0; i < names.size(); ++i) {
    const std::string& name = names[i];
    const bool served = std::any_of(models_.begin(), models_.end(), [&](const HostedModel& other) {
      return HasName(*other.model, name);
    });
    const bool loads =
        std::any_of(loading_.begin(), loading_.end(),
                    [&](const std::vector<std::string>& others) { return Has(others, name); });
    const bool twice =
        std::find(names.begin() + static_cast<ptrdiff_t>(i) + 1, names.end(), name) != names.end();
    if (!served && !loads && !twice) continue;
    return absl::AlreadyExistsError(absl::StrCat("'", name, "' is the name of another model",
                                                 twice ? ", or given twice" : "",
                                                 "; --model=NAME=PATH gives it one of its own"));
  }
  return absl::OkStatus();
}

absl::Status ModelRegistry::Reserve(const std::vector<std::string>& names) {
  MutexLock lock(&mutex_);
  SKEIN_RETURN_IF_ERROR(CheckFree(names));
  loading_.push_back(names);
  return absl::OkStatus();
}

void ModelRegistry::Release(const std::vector<std::string>& names) {
  MutexLock lock(&mutex_);
  std::erase(loading_, names);
}

std::vector<std::string> ModelRegistry::Loading() const {
  MutexLock lock(&mutex_);
  std::vector<std::string> first;
  for (const std::vector<std::string>& names : loading_) first.push_back(names.front());
  return first;
}

absl::Status ModelRegistry::Add(HostedModel model) {
  std::vector<std::string> names = {model.model->name};
  names.insert(names.end(), model.model->aliases.begin(), model.model->aliases.end());
  MutexLock lock(&mutex_);
  std::erase(loading_, names);
  SKEIN_RETURN_IF_ERROR(CheckFree(names));
  models_.push_back(std::move(model));
  return absl::OkStatus();
}

void ModelRegistry::Remove(const std::string& name) {
  MutexLock lock(&mutex_);
  std::erase_if(models_, [&](const HostedModel& hosted) { return hosted.model->name == name; });
}

Dispatcher::Counts ModelRegistry::counts() const {
  Dispatcher::Counts sum;
  for (const HostedModel& hosted : All()) sum += hosted.dispatcher->counts();
  return sum;
}

bool ModelRegistry::serving() const {
  const std::vector<HostedModel> models = All();
  return std::any_of(models.begin(), models.end(),
                     [](const HostedModel& hosted) { return hosted.dispatcher->serving(); });
}

std::string NamesOf(const std::vector<HostedModel>& models) {
  if (models.empty()) return "no model";
  return absl::StrJoin(models, ", ", [](std::string* out, const HostedModel& hosted) {
    absl::StrAppend(out, "'", hosted.model->name, "'");
  });
}

}  // namespace skein::coordinator
