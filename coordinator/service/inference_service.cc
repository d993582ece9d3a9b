#include "coordinator/service/inference_service.h"

#include <iterator>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "coordinator/service/validation.h"

namespace skein::coordinator {
namespace {

uint64_t RandomSeed() {
  std::random_device device;
  return uint64_t{device()} << 32 | device();
}

}  // namespace

InferenceService::InferenceService(const ServedModel* model, Dispatcher* dispatcher,
                                   const Clock* clock, RequestObserver* observer)
    : model_(model),
      dispatcher_(dispatcher),
      clock_(clock),
      observer_(observer),
      instance_(absl::StrCat(absl::Hex(RandomSeed() >> 32, absl::kZeroPad8))) {}

absl::StatusOr<std::shared_ptr<Generation>> InferenceService::Generate(
    const GenerateRequest& request, Generation::OnReady on_ready) {
  absl::StatusOr<std::shared_ptr<Generation>> generation = Begin(request, std::move(on_ready));
  if (generation.ok()) {
    observer_->OnAdmitted(std::ssize((*generation)->request().prompt));
  } else {
    observer_->OnRefused(generation.status().code());
  }
  return generation;
}

absl::StatusOr<std::shared_ptr<Generation>> InferenceService::Begin(const GenerateRequest& request,
                                                                    Generation::OnReady on_ready) {
  SKEIN_ASSIGN_OR_RETURN(ValidRequest valid, Validate(request, *model_, RandomSeed()));
  const serving::RequestId id(next_id_.fetch_add(1, std::memory_order_relaxed));
  auto generation = std::make_shared<Generation>(
      id, absl::StrCat("req-", instance_, "-", id.value()), std::move(valid), model_, clock_,
      std::move(on_ready), observer_);
  SKEIN_RETURN_IF_ERROR(dispatcher_->Admit(generation));
  return generation;
}

void InferenceService::Cancel(const std::vector<std::shared_ptr<Generation>>& generations) {
  std::vector<serving::RequestId> ids;
  for (const auto& generation : generations) ids.push_back(generation->id());
  if (ids.empty()) return;
  dispatcher_->Cancel(ids);
  for (const auto& generation : generations) generation->Abandon();
}

}  // namespace skein::coordinator
