#include "coordinator/service/kept_answers.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/printable.h"
#include "base/status_macros.h"
#include "coordinator/service/answer_codec.h"
#include "spdlog/spdlog.h"

namespace skein::coordinator {

KeptAnswers::KeptAnswers(Options options, Journal* journal, const Clock* clock)
    : options_(options), journal_(journal), clock_(clock) {}

KeptAnswers::~KeptAnswers() = default;

bool KeptAnswers::CanKeep() {
  if (!journal_->healthy()) return false;
  if (shared_->total_bytes < options_.max_bytes) return true;
  std::vector<std::pair<absl::Time, std::shared_ptr<KeptAnswer>>> finished;
  for (auto& answer : All()) {
    if (const auto since = answer->finished()) finished.emplace_back(*since, std::move(answer));
  }
  std::sort(finished.begin(), finished.end(), [](const auto& a, const auto& b) {
    return std::pair(a.first, a.second->number()) < std::pair(b.first, b.second->number());
  });
  for (auto& [since, answer] : finished) {
    if (shared_->total_bytes < options_.max_bytes) break;
    Discard(answer);
    answer.reset();
  }
  return shared_->total_bytes < options_.max_bytes;
}

absl::StatusOr<std::unique_ptr<KeptReader>> KeptAnswers::Begin(
    InferenceService* service, const std::vector<GenerateRequest>& requests, KeptHead head,
    std::function<void()> wake, KeptAnswer::Count count) {
  SKEIN_ASSIGN_OR_RETURN(const HostedModel hosted, service->Find(requests.front().model));
  head.model = hosted.model->name;
  head.identity = hosted.model->identity;
  if (head.arrived == absl::InfinitePast()) head.arrived = clock_->Now();
  std::vector<ValidRequest> valid;
  for (const GenerateRequest& request : requests) {
    SKEIN_ASSIGN_OR_RETURN(ValidRequest checked, service->Check(hosted, request));
    head.requests.push_back(EncodeRequest(checked));
    valid.push_back(std::move(checked));
  }
  const auto answer = std::make_shared<KeptAnswer>(Context(), journal_->NextAnswer(),
                                                   std::move(head), service, hosted.model);
  std::vector<std::shared_ptr<Generation>> generations;
  for (ValidRequest& request : valid) {
    generations.push_back(
        service->Make(hosted, std::move(request), answer->head().id, answer->OnReady()));
    answer->Add(generations.back());
  }
  for (size_t i = 0; i < generations.size(); ++i) {
    const absl::Status admitted = service->Admit(hosted, generations[i]);
    if (admitted.ok()) continue;
    service->Cancel({generations.begin(), generations.begin() + static_cast<ptrdiff_t>(i)});
    return admitted;
  }
  auto reader = answer->Read(0, std::move(wake));
  Insert(answer);
  answer->Start(std::move(count));
  return reader;
}

absl::StatusOr<std::shared_ptr<KeptAnswer>> KeptAnswers::Find(std::string_view id,
                                                              const Asker& asker) const {
  MutexLock lock(&mutex_);
  const auto found = answers_.find(id);
  if (found != answers_.end()) {
    const KeptHead& head = found->second->head();
    if (head.key == asker.key && asker.http == !head.route.empty()) return found->second;
  }
  return absl::NotFoundError(absl::StrCat(
      "there is no answer '", Printable(std::string(id), kMaxNameBytes),
      "' for whoever asks: it never was, it was no stream, another key asked for it, or its client "
      "was away for longer than ",
      absl::FormatDuration(options_.window), " (--resume-window)"));
}

absl::StatusOr<std::shared_ptr<KeptAnswer>> FindKept(const InferenceService& service,
                                                     std::string_view id,
                                                     const KeptAnswers::Asker& asker) {
  if (service.kept() != nullptr) return service.kept()->Find(id, asker);
  return absl::NotFoundError("answers are not kept here: the coordinator has no --journal");
}

void KeptAnswers::Discard(const std::shared_ptr<KeptAnswer>& answer) {
  {
    MutexLock lock(&mutex_);
    answers_.erase(answer->head().id);
  }
  answer->Drop();
  journal_->Remove(answer->number());
}

void KeptAnswers::Tick() {
  for (const auto& answer : All()) {
    // Clients were told to come to the next process.
    if (shared_->draining) continue;
    if (answer->expired()) {
      Discard(answer);
    } else if (answer->TakeFailure()) {
      answer->Cancel();
    }
  }
}

std::vector<std::shared_ptr<KeptAnswer>> KeptAnswers::All() const {
  MutexLock lock(&mutex_);
  std::vector<std::shared_ptr<KeptAnswer>> all;
  all.reserve(answers_.size());
  for (const auto& [id, answer] : answers_) all.push_back(answer);
  return all;
}

void KeptAnswers::Insert(const std::shared_ptr<KeptAnswer>& answer) {
  MutexLock lock(&mutex_);
  answers_.emplace(answer->head().id, answer);
}

// ---- After a restart ----

void KeptAnswers::Restore(InferenceService* service) {
  std::vector<Journal::Left> all = journal_->TakeLeft();
  if (all.empty()) return;
  const absl::Duration away = clock_->Now() - journal_->last_alive();
  int64_t restored = 0;
  for (Journal::Left& left : all) {
    absl::Status status = away <= options_.window
                              ? RestoreOne(left, service)
                              : absl::DeadlineExceededError(absl::StrCat(
                                    "no coordinator was there for ",
                                    absl::FormatDuration(absl::Trunc(away, absl::Seconds(1)))));
    if (status.ok()) {
      ++restored;
      continue;
    }
    spdlog::warn("an answer of the journal is given up: {}", std::string(status.message()));
    journal_->Remove(left.answer);
  }
  spdlog::info("{} answers of the journal wait for their clients", restored);
}

absl::Status KeptAnswers::RestoreOne(Journal::Left& left, InferenceService* service) {
  SKEIN_ASSIGN_OR_RETURN(KeptHead head, DecodeHead(left.head));
  const absl::StatusOr<HostedModel> hosted = service->models().Find(head.model);
  std::shared_ptr<const ServedModel> model;
  std::string why;
  if (!hosted.ok()) {
    why = absl::StrCat("the model '", head.model, "' that began it is not served any more");
  } else if (hosted->model->identity != head.identity) {
    why = absl::StrCat("the model '", head.model, "' has changed since it began");
  } else {
    model = hosted->model;
  }
  std::vector<ValidRequest> requests;
  for (const std::string& request : head.requests) {
    SKEIN_ASSIGN_OR_RETURN(ValidRequest valid, DecodeRequest(request));
    requests.push_back(std::move(valid));
  }
  const absl::Time arrived = head.arrived;
  const auto answer =
      std::make_shared<KeptAnswer>(Context(), left.answer, std::move(head), service, model);
  SKEIN_RETURN_IF_ERROR(answer->Restore(left.records));
  const bool complete = answer->finished().has_value();
  // It stays as it is: a later process may have the model again.
  if (model == nullptr) spdlog::warn("the answer {} cannot go on: {}", answer->head().id, why);
  std::vector<std::shared_ptr<Generation>> running;
  for (size_t part = 0; part < requests.size() && !complete && model != nullptr; ++part) {
    running.push_back(
        service->Make(*hosted, std::move(requests[part]), answer->head().id, answer->OnReady()));
    running.back()->Restore(arrived, answer->EventsOf(static_cast<int32_t>(part)));
    answer->Add(running.back());
  }
  Insert(answer);
  answer->Start(nullptr);
  for (auto& generation : running) {
    if (generation->open_answers() > 0) service->Readmit(*hosted, generation, options_.window);
  }
  return absl::OkStatus();
}

}  // namespace skein::coordinator
