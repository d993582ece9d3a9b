#include "coordinator/service/dispatcher.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "coordinator/service/replica_choice.h"

namespace skein::coordinator {
namespace {

// As many as run at once wait at the replica, so that its scheduler always has a next request.
constexpr int64_t kRequestsPerSlot = 2;

}  // namespace

void Dispatcher::OnReplicaUp(const ReplicaInfo& replica) {
  MutexLock lock(&mutex_);
  replicas_[replica.id].info = replica;
  if (draining_) return;
  options_.on_serving(true);
  Pump();
}

void Dispatcher::OnReplicaDown(uint64_t id, const absl::Status& why) {
  MutexLock lock(&mutex_);
  const auto lost = replicas_.extract(id);
  if (lost.empty()) return;
  if (!ServingLocked()) options_.on_serving(false);
  for (const auto& [request_id, generation] : lost.mapped().requests) generation->Fail(why);
  if (replicas_.empty()) FailQueue(why);
}

void Dispatcher::OnStepOutput(uint64_t id, const StepOutput& output) {
  MutexLock lock(&mutex_);
  const auto found = replicas_.find(id);
  if (found == replicas_.end()) return;
  Replica& replica = found->second;
  StepInput reply;
  for (const SequenceOutput& sequence : output.sequences) {
    const auto request = replica.requests.find(sequence.request_id);
    if (request == replica.requests.end()) continue;  // cancelled meanwhile
    const Generation::Progress progress = request->second->OnOutput(sequence);
    if (progress == Generation::Progress::kRunning) continue;
    if (progress == Generation::Progress::kFinishedEarly) {
      reply.cancelled.push_back(sequence.request_id);
    }
    Remove(replica, sequence.request_id);
  }
  if (!reply.cancelled.empty()) replica.info.leader->SendStep(std::move(reply));
  Pump();
}

absl::Status Dispatcher::Admit(std::shared_ptr<Generation> generation) {
  MutexLock lock(&mutex_);
  if (draining_) return absl::UnavailableError("the coordinator is shutting down");
  if (replicas_.empty()) {
    return absl::UnavailableError(
        "no replica serves: no job of workers is attached and loaded yet; start one with "
        "`mpirun -np N worker`, or try again when `skein status` shows it serving");
  }
  queue_.push_back(std::move(generation));
  Pump();
  if (static_cast<int64_t>(queue_.size()) <= options_.max_queue) return absl::OkStatus();
  queue_.pop_back();
  return absl::ResourceExhaustedError(absl::StrCat("the queue is full: ", options_.max_queue,
                                                   " requests wait already; try again later"));
}

void Dispatcher::Cancel(uint64_t request_id) {
  MutexLock lock(&mutex_);
  const auto queued = std::find_if(queue_.begin(), queue_.end(), [&](const auto& generation) {
    return generation->id() == request_id;
  });
  if (queued != queue_.end()) {
    queue_.erase(queued);
    return;
  }
  for (auto& [id, replica] : replicas_) {
    if (!replica.requests.contains(request_id)) continue;
    replica.info.leader->SendStep({.cancelled = {request_id}});
    Remove(replica, request_id);
    Pump();
    return;
  }
}

void Dispatcher::StartDrain() {
  MutexLock lock(&mutex_);
  if (std::exchange(draining_, true)) return;
  options_.on_serving(false);
}

void Dispatcher::FailAll(const absl::Status& status) {
  MutexLock lock(&mutex_);
  FailQueue(status);
  for (auto& [id, replica] : replicas_) {
    StepInput cancels;
    for (const auto& [request_id, generation] : replica.requests) {
      generation->Fail(status);
      cancels.cancelled.push_back(request_id);
    }
    if (!cancels.cancelled.empty()) replica.info.leader->SendStep(std::move(cancels));
    replica.requests.clear();
    replica.cost = 0;
  }
}

Dispatcher::Counts Dispatcher::counts() const {
  MutexLock lock(&mutex_);
  Counts counts{.queued = static_cast<int64_t>(queue_.size())};
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

bool Dispatcher::ServingLocked() const { return !draining_ && !replicas_.empty(); }

void Dispatcher::Pump() {
  while (!queue_.empty()) {
    std::vector<ReplicaView> views;
    std::vector<Replica*> replicas;
    for (auto& [id, replica] : replicas_) {
      views.push_back({static_cast<int64_t>(replica.requests.size()), replica.cost,
                       kRequestsPerSlot * replica.info.max_sequences});
      replicas.push_back(&replica);
    }
    const std::optional<size_t> choice = ChooseReplica(views);
    if (!choice.has_value()) return;
    Replica& replica = *replicas[*choice];
    std::shared_ptr<Generation> generation = std::move(queue_.front());
    queue_.pop_front();
    generation->OnDispatched();
    StepInput input;
    input.requests.push_back(generation->request());
    replica.cost += generation->cost();
    replica.requests.emplace(generation->id(), std::move(generation));
    replica.info.leader->SendStep(std::move(input));
  }
}

void Dispatcher::Remove(Replica& replica, uint64_t request_id) {
  const auto removed = replica.requests.extract(request_id);
  if (!removed.empty()) replica.cost -= removed.mapped()->cost();
}

void Dispatcher::FailQueue(const absl::Status& status) {
  for (const auto& generation : queue_) generation->Fail(status);
  queue_.clear();
}

}  // namespace skein::coordinator
