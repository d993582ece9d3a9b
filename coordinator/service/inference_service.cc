#include "coordinator/service/inference_service.h"

#include <iterator>
#include <map>
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

// The model outlives the generation, which refers to it.
struct WithModel {
  std::shared_ptr<const ServedModel> model;
  Generation generation;
};

}  // namespace

std::string InferenceService::NewInstance() {
  return absl::StrCat(absl::Hex(RandomSeed() >> 32, absl::kZeroPad8));
}

absl::StatusOr<std::shared_ptr<Generation>> InferenceService::Generate(
    const GenerateRequest& request, Generation::OnReady on_ready) {
  const absl::StatusOr<HostedModel> hosted = models_->Find(request.model);
  if (!hosted.ok()) {
    of_no_model_->OnRefused(hosted.status().code());
    return hosted.status();
  }
  absl::StatusOr<std::shared_ptr<Generation>> generation =
      Begin(*hosted, request, std::move(on_ready));
  if (generation.ok()) {
    hosted->observer->OnAdmitted(std::ssize((*generation)->request().prompt));
  } else {
    hosted->observer->OnRefused(generation.status().code());
  }
  return generation;
}

absl::StatusOr<std::shared_ptr<Generation>> InferenceService::Begin(const HostedModel& hosted,
                                                                    const GenerateRequest& request,
                                                                    Generation::OnReady on_ready) {
  SKEIN_ASSIGN_OR_RETURN(ValidRequest valid, Validate(request, *hosted.model, RandomSeed()));
  const serving::RequestId id(next_id_.fetch_add(1, std::memory_order_relaxed));
  const std::shared_ptr<WithModel> both(new WithModel{
      hosted.model,
      Generation(id, absl::StrCat("req-", instance_, "-", id.value()), std::move(valid),
                 hosted.model.get(), clock_, std::move(on_ready), hosted.observer)});
  std::shared_ptr<Generation> generation(both, &both->generation);
  SKEIN_RETURN_IF_ERROR(hosted.dispatcher->Admit(generation));
  return generation;
}

void InferenceService::Cancel(const std::vector<std::shared_ptr<Generation>>& generations) {
  std::map<std::string, std::vector<serving::RequestId>> by_model;
  for (const auto& generation : generations) {
    by_model[generation->model().name].push_back(generation->id());
  }
  for (const auto& [name, ids] : by_model) {
    // Ids are of one model alone. Those of a model that was removed have ended.
    if (const auto hosted = models_->Find(name); hosted.ok()) hosted->dispatcher->Cancel(ids);
  }
  for (const auto& generation : generations) generation->Abandon();
}

}  // namespace skein::coordinator
