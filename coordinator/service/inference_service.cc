#include "coordinator/service/inference_service.h"

#include <iterator>
#include <map>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "coordinator/service/call_record.h"
#include "coordinator/service/response_id.h"
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
  SKEIN_ASSIGN_OR_RETURN(const HostedModel hosted, Find(request.model));
  SKEIN_ASSIGN_OR_RETURN(ValidRequest valid, Check(hosted, request));
  std::shared_ptr<Generation> generation = Make(hosted, std::move(valid), "", std::move(on_ready));
  SKEIN_RETURN_IF_ERROR(Admit(hosted, generation));
  return generation;
}

absl::StatusOr<HostedModel> InferenceService::Find(const std::string& model) {
  absl::StatusOr<HostedModel> hosted = models_->Find(model);
  if (!hosted.ok()) of_no_model_->OnRefused(hosted.status().code());
  return hosted;
}

absl::StatusOr<ValidRequest> InferenceService::Check(const HostedModel& hosted,
                                                     const GenerateRequest& request) {
  absl::StatusOr<ValidRequest> valid = Validate(request, *hosted.model, RandomSeed());
  if (!valid.ok()) hosted.observer->OnRefused(valid.status().code());
  return valid;
}

std::shared_ptr<Generation> InferenceService::Make(const HostedModel& hosted, ValidRequest valid,
                                                   std::string public_id,
                                                   Generation::OnReady on_ready) {
  const serving::RequestId id(next_id_.fetch_add(1, std::memory_order_relaxed));
  if (public_id.empty()) public_id = absl::StrCat("req-", instance_, "-", id.value());
  const std::shared_ptr<WithModel> both(new WithModel{
      hosted.model, Generation(id, std::move(public_id), std::move(valid), hosted.model.get(),
                               clock_, std::move(on_ready), hosted.observer)});
  return std::shared_ptr<Generation>(both, &both->generation);
}

absl::Status InferenceService::Admit(const HostedModel& hosted,
                                     const std::shared_ptr<Generation>& generation,
                                     IfFull if_full) {
  absl::Status admitted = hosted.dispatcher->Admit(generation);
  const bool is_full = absl::IsResourceExhausted(admitted);
  if ((if_full == IfFull::kExceed && is_full) ||
      (if_full != IfFull::kRefuse && absl::IsUnavailable(admitted))) {
    hosted.dispatcher->Readmit(generation, absl::ZeroDuration());
    admitted = absl::OkStatus();
  }
  if (admitted.ok()) {
    const int64_t tokens = std::ssize(generation->request().prompt);
    hosted.observer->OnAdmitted(tokens);
    if (const auto& record = CallRecord::Current()) {
      record->Concerns(LoggedId(generation->public_id()));
      record->OnAdmitted(tokens);
    }
  } else if (if_full != IfFull::kTell || !is_full) {
    hosted.observer->OnRefused(admitted.code());
  }
  return admitted;
}

void InferenceService::Readmit(const HostedModel& hosted,
                               const std::shared_ptr<Generation>& generation,
                               absl::Duration patience) {
  hosted.dispatcher->Readmit(generation, patience);
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
