#include "coordinator/service/dispatcher.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/log/log_fields.h"
#include "coordinator/service/replica_choice.h"
#include "spdlog/spdlog.h"

namespace skein::coordinator {

absl::Status Dispatcher::CheckFits(const Generation& generation, const Replica& replica) {
  const serving::Request& request = generation.request();
  return coordinator::CheckFits(
      {.answers = generation.open_answers(),
       .prompt = static_cast<int64_t>(request.prompt.size()),
       .max_tokens = request.max_tokens},
      {.slots = replica.info.max_num_seqs, .context_length = replica.info.context_length});
}

bool Dispatcher::Takes(const Replica& replica, const Generation& generation) {
  return !replica.draining && CheckFits(generation, replica).ok();
}

// ---- Replicas ----

void Dispatcher::OnReplicaUp(const ReplicaInfo& replica) {
  MutexLock lock(&mutex_);
  replicas_.insert_or_assign(replica.id,
                             Replica{.info = replica,
                                     .prefixes = PrefixIndex(replica.page_size, replica.pages),
                                     .requests = {}});
  if (!draining_) options_.on_serving(true);
  NoteStranded();
  Pump();
}

void Dispatcher::OnReplicasDraining(const std::vector<ReplicaId>& ids) {
  MutexLock lock(&mutex_);
  for (const ReplicaId id : ids) {
    if (const auto found = replicas_.find(id); found != replicas_.end()) {
      found->second.draining = true;
    }
  }
  if (!ServingLocked()) options_.on_serving(false);
  NoteStranded();
}

int64_t Dispatcher::Outstanding(const std::vector<ReplicaId>& ids) const {
  MutexLock lock(&mutex_);
  int64_t count = 0;
  for (const ReplicaId id : ids) {
    if (const auto found = replicas_.find(id); found != replicas_.end()) {
      count += static_cast<int64_t>(found->second.requests.size());
    }
  }
  return count;
}

void Dispatcher::OnReplicasDown(const std::vector<ReplicaId>& ids, const absl::Status& why) {
  if (ids.empty()) return;
  MutexLock lock(&mutex_);
  int64_t waiting = 0;
  for (const ReplicaId id : ids) {
    const auto lost = replicas_.extract(id);
    if (lost.empty()) continue;
    // One that was drained is no failure that a request could have caused.
    const int64_t max_retries =
        lost.mapped().draining ? std::numeric_limits<int64_t>::max() : options_.max_retries;
    for (auto& [request_id, request] : lost.mapped().requests) {
      // It ends here if all its tokens had come, or if its retries are used up.
      const bool goes_on = request.generation->OnReplicaLost(why, max_retries);
      const WithLogFields fields(request.generation->log_fields());
      spdlog::info("the replica of this request is gone: the request {}",
                   goes_on ? "goes on elsewhere" : "has ended");
      if (!goes_on) continue;
      queue_.emplace(request_id, Waiting{std::move(request.generation), /*is_new=*/false});
      ++waiting;
    }
    last_loss_why_ = why;
  }
  if (waiting > 0)
    spdlog::warn("{} requests of the job that is gone are to go on elsewhere", waiting);
  if (!ServingLocked()) options_.on_serving(false);
  NoteStranded();
  Pump();
}

absl::Status Dispatcher::OnStepOutput(ReplicaId id, const serving::StepOutput& output) {
  MutexLock lock(&mutex_);
  const auto found = replicas_.find(id);
  // It was lost meanwhile: another one gives these tokens.
  if (found == replicas_.end()) return absl::OkStatus();
  Replica& replica = found->second;
  serving::RequestUpdates reply;
  std::vector<std::shared_ptr<Generation>> ready;
  absl::Status checked;
  for (const serving::AnswerOutput& answer : output.answers) {
    const auto request = replica.requests.find(answer.request_id);
    if (request == replica.requests.end()) continue;  // cancelled meanwhile
    checked = request->second.generation->Check(answer);
    if (!checked.ok()) break;
    ready.push_back(request->second.generation);
    switch (ready.back()->OnOutput(answer)) {
      case Generation::Progress::kRunning:
        break;
      case Generation::Progress::kAnswerFinishedEarly:
        reply.cancelled_answers.push_back({answer.request_id, answer.answer});
        break;
      case Generation::Progress::kFinishedEarly:
        reply.cancelled.push_back(answer.request_id);
        Remove(replica, answer.request_id);
        break;
      case Generation::Progress::kFinished:
        Remove(replica, answer.request_id);
        break;
    }
  }
  // Only now are clients to send: one with several requests gets all that the step gave at once.
  // What stood before a broken output was checked, so it goes out as well.
  for (const auto& generation : ready) generation->OnOutputsEnd();
  if (!reply.cancelled.empty() || !reply.cancelled_answers.empty()) {
    replica.info.leader->SendUpdates(std::move(reply));
  }
  // A replica that is about to be lost gets nothing more.
  if (checked.ok()) Pump();
  return checked;
}

// ---- Requests ----

absl::Status Dispatcher::Admit(std::shared_ptr<Generation> generation) {
  MutexLock lock(&mutex_);
  if (draining_) return absl::UnavailableError(why_draining_);
  if (!AnyTakes() && !replicas_.empty()) {
    return absl::UnavailableError(
        "no replica takes new requests: the last job that serves is being drained; try again when "
        "`skein status` shows another one");
  }
  if (replicas_.empty()) {
    return absl::UnavailableError(
        "no replica serves: no job of workers is attached and loaded yet; start one with "
        "`mpirun -np N worker`, or try again when `skein status` shows it serving");
  }
  if (!FitsAny(*generation)) {
    const bool fitted = std::any_of(replicas_.begin(), replicas_.end(), [&](const auto& entry) {
      return CheckFits(*generation, entry.second).ok();
    });
    const std::string why = WhyNoneFits(*generation);
    if (!fitted) {
      return absl::FailedPreconditionError(absl::StrCat("the request fits no replica: ", why));
    }
    return absl::UnavailableError(
        absl::StrCat("the request fits no replica that takes new ones: ", why,
                     "; try again when `skein status` shows another job that serves"));
  }
  const serving::RequestId id = generation->id();
  queue_.emplace(id, Waiting{std::move(generation)});
  Pump();
  // Only those that no replica took count for the limit. Beyond it this request is refused,
  // whatever its priority: the others were admitted.
  if (static_cast<int64_t>(queue_.size()) <= options_.max_queue || queue_.erase(id) == 0) {
    return absl::OkStatus();
  }
  return absl::ResourceExhaustedError(absl::StrCat("the queue is full: ", options_.max_queue,
                                                   " requests wait already; try again later"));
}

void Dispatcher::Readmit(std::shared_ptr<Generation> generation, absl::Duration patience) {
  MutexLock lock(&mutex_);
  const serving::RequestId id = generation->id();
  const absl::Time stranded =
      FitsAny(*generation) ? absl::InfiniteFuture() : clock_->Now() + patience;
  queue_.emplace(id, Waiting{std::move(generation), /*is_new=*/false, stranded});
  Pump();
}

void Dispatcher::Cancel(const std::vector<serving::RequestId>& request_ids) {
  MutexLock lock(&mutex_);
  CancelLocked(request_ids);
}

void Dispatcher::CancelLocked(const std::vector<serving::RequestId>& request_ids) {
  for (const serving::RequestId request_id : request_ids) queue_.erase(request_id);
  for (auto& [id, replica] : replicas_) {
    serving::RequestUpdates updates;
    for (const serving::RequestId request_id : request_ids) {
      if (!replica.requests.contains(request_id)) continue;
      updates.cancelled.push_back(request_id);
      Remove(replica, request_id);
    }
    if (!updates.cancelled.empty()) replica.info.leader->SendUpdates(std::move(updates));
  }
  Pump();
}

void Dispatcher::Tick() {
  MutexLock lock(&mutex_);
  const absl::Time now = clock_->Now();
  EndLate(now);
  std::erase_if(queue_, [&](const auto& entry) {
    const Waiting& waiting = entry.second;
    if (now - waiting.stranded < options_.replica_wait) return false;
    const std::string none =
        replicas_.empty() ? "" : absl::StrCat(WhyNoneFits(*waiting.generation), "; ");
    waiting.generation->GiveUp(
        absl::StrCat("no replica ", none.empty() ? "" : "that it fits ", "came within ",
                     absl::FormatDuration(options_.replica_wait), " (--replica-wait): ", none,
                     std::string(last_loss_why_.message())));
    return true;
  });
}

void Dispatcher::EndLate(absl::Time now) {
  std::vector<serving::RequestId> late;
  const auto end_if_late = [&](Generation& generation) {
    if (generation.request().deadline > now) return;
    late.push_back(generation.id());
    generation.Fail(absl::DeadlineExceededError("the deadline passed"));
  };
  // CancelLocked takes them out of the maps, so not while these are walked over.
  for (const auto& [request_id, waiting] : queue_) end_if_late(*waiting.generation);
  for (const auto& [id, replica] : replicas_) {
    for (const auto& [request_id, request] : replica.requests) end_if_late(*request.generation);
  }
  if (!late.empty()) CancelLocked(late);
}

void Dispatcher::StartDrain(const std::string& why) {
  MutexLock lock(&mutex_);
  if (std::exchange(draining_, true)) return;
  why_draining_ = why;
  options_.on_serving(false);
  NoteStranded();
}

void Dispatcher::NoteStranded() {
  for (auto& [id, waiting] : queue_) {
    // Whoever was stranded before keeps that time: replica_wait does not begin anew.
    if (FitsAny(*waiting.generation)) {
      waiting.stranded = absl::InfiniteFuture();
    } else if (waiting.stranded == absl::InfiniteFuture()) {
      waiting.stranded = clock_->Now();
    }
  }
  if (!draining_) return;
  std::erase_if(queue_, [&](const auto& entry) {
    if (entry.second.stranded == absl::InfiniteFuture()) return false;
    entry.second.generation->Fail(absl::UnavailableError(absl::StrCat(
        why_draining_,
        ", and no replica is left to go on: ", std::string(last_loss_why_.message()))));
    return true;
  });
}

void Dispatcher::FailAll(const absl::Status& status) {
  MutexLock lock(&mutex_);
  for (const auto& [id, waiting] : queue_) waiting.generation->Fail(status);
  queue_.clear();
  for (auto& [id, replica] : replicas_) {
    serving::RequestUpdates cancels;
    for (const auto& [request_id, request] : replica.requests) {
      request.generation->Fail(status);
      cancels.cancelled.push_back(request_id);
    }
    if (!cancels.cancelled.empty()) replica.info.leader->SendUpdates(std::move(cancels));
    replica.requests.clear();
    replica.answers = replica.tokens = 0;
  }
}

Dispatcher::Counts Dispatcher::counts() const {
  MutexLock lock(&mutex_);
  Counts counts{.queued = static_cast<int64_t>(queue_.size()), .migrations = migrations_};
  for (const auto& [id, replica] : replicas_) {
    counts.running += static_cast<int64_t>(replica.requests.size());
  }
  return counts;
}

bool Dispatcher::serving() const {
  MutexLock lock(&mutex_);
  return ServingLocked();
}

bool Dispatcher::draining() const {
  MutexLock lock(&mutex_);
  return draining_;
}

bool Dispatcher::AnyTakes() const {
  return std::any_of(replicas_.begin(), replicas_.end(),
                     [](const auto& entry) { return !entry.second.draining; });
}

bool Dispatcher::ServingLocked() const { return !draining_ && AnyTakes(); }

// ---- From the queue to a replica ----

Dispatcher::Place Dispatcher::PlaceOf(const Waiting& waiting, absl::Time now) {
  const Generation& generation = *waiting.generation;
  const serving::Request& request = generation.request();
  return {.is_new = waiting.is_new,
          .order = serving::OrderAt(now, request.priority, request.deadline, generation.arrived()),
          .id = generation.id()};
}

bool Dispatcher::FitsAny(const Generation& generation) const {
  return std::any_of(replicas_.begin(), replicas_.end(),
                     [&](const auto& entry) { return Takes(entry.second, generation); });
}

std::string Dispatcher::WhyNoneFits(const Generation& generation) const {
  return absl::StrJoin(replicas_, "; ", [&](std::string* out, const auto& entry) {
    const absl::Status fits = CheckFits(generation, entry.second);
    absl::StrAppend(out, entry.second.info.name, ": ",
                    fits.ok() ? "it takes no new requests" : std::string(fits.message()));
  });
}

void Dispatcher::Pump() {
  const absl::Time now = clock_->Now();
  // Places change with time, since waiting raises priorities: they are sorted anew each time.
  std::vector<Place> places;
  places.reserve(queue_.size());
  for (const auto& [id, waiting] : queue_) places.push_back(PlaceOf(waiting, now));
  std::sort(places.begin(), places.end());
  for (const Place& place : places) {
    const auto next = queue_.find(place.id);
    int64_t cached = 0;
    Replica* replica = Choose(*next->second.generation, &cached);
    // One behind it may fit where this one does not.
    if (replica == nullptr) continue;
    Give(*replica, cached, std::move(next->second.generation));
    queue_.erase(next);
  }
}

Dispatcher::Replica* Dispatcher::Choose(const Generation& generation, int64_t* cached) {
  const serving::Request& request = generation.request();
  std::vector<ReplicaView> views;
  std::vector<Replica*> replicas;
  for (auto& [id, replica] : replicas_) {
    ReplicaView view{replica.answers, replica.info.max_num_seqs, replica.tokens};
    if (!HasRoom(view) || !Takes(replica, generation)) continue;
    // Log probabilities of the prompt need all of it computed.
    if (request.prompt_logprobs < 0) view.cached = replica.prefixes.Match(request.prompt);
    views.push_back(view);
    replicas.push_back(&replica);
  }
  const std::optional<size_t> choice = ChooseReplica(views);
  if (!choice.has_value()) return nullptr;
  *cached = views[*choice].cached;
  return replicas[*choice];
}

void Dispatcher::Give(Replica& replica, int64_t cached, std::shared_ptr<Generation> generation) {
  serving::RequestUpdates updates;
  const serving::Request& request = updates.requests.emplace_back(generation->Dispatch());
  replica.prefixes.Insert(request.prompt);
  Running running{.answers = static_cast<int64_t>(request.answers.size())};
  // What an answer has given already is computed as a prompt: whole answers count either way.
  running.tokens = static_cast<int64_t>(request.prompt.size()) - cached +
                   running.answers * int64_t{request.max_tokens};
  if (std::any_of(request.answers.begin(), request.answers.end(),
                  [](const serving::AnswerStart& answer) { return !answer.output.empty(); })) {
    ++migrations_;
  }
  replica.answers += running.answers;
  replica.tokens += running.tokens;
  running.generation = std::move(generation);
  replica.requests.emplace(request.id, std::move(running));
  replica.info.leader->SendUpdates(std::move(updates));
}

void Dispatcher::Remove(Replica& replica, serving::RequestId request_id) {
  const auto removed = replica.requests.extract(request_id);
  if (removed.empty()) return;
  replica.answers -= removed.mapped().answers;
  replica.tokens -= removed.mapped().tokens;
}

}  // namespace skein::coordinator
