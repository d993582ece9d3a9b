// What jobs serve, and how they cease to.
#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "coordinator/cluster/cluster.h"
#include "spdlog/spdlog.h"

namespace skein::coordinator {

// ---- Models ----

void Cluster::AddModel(JobModel model) {
  MutexLock lock(&mutex_);
  models_.push_back(std::make_shared<const JobModel>(std::move(model)));
}

void Cluster::RemoveModel(const std::string& name, const std::string& reason, int exit_code) {
  MutexLock lock(&mutex_);
  std::erase_if(models_, [&](const auto& model) { return model->facts.name == name; });
  for (auto& [number, job] : jobs_) {
    if (!job.over() && job.model->facts.name == name) EndWell(job, reason, exit_code);
  }
}

int64_t Cluster::jobs_of(const std::string& name) const {
  MutexLock lock(&mutex_);
  for (const auto& model : models_) {
    if (model->facts.name == name) return JobsOf(*model);
  }
  return 0;
}

int64_t Cluster::JobsOf(const JobModel& model) const {
  return std::count_if(jobs_.begin(), jobs_.end(), [&](const auto& entry) {
    return !entry.second.over() && entry.second.model.get() == &model;
  });
}

absl::StatusOr<std::shared_ptr<const JobModel>> Cluster::ChooseModel(
    const attach::Hello& hello) const {
  std::shared_ptr<const JobModel> fewest;
  for (const auto& model : models_) {
    if (hello.model.empty()) {
      if (fewest == nullptr || JobsOf(*model) < JobsOf(*fewest)) fewest = model;
    } else if (HasName(*model, hello.model)) {
      return model;
    }
  }
  if (fewest != nullptr) return fewest;
  const std::string names = absl::StrJoin(models_, ", ", [](std::string* out, const auto& model) {
    absl::StrAppend(out, "'", model->facts.name, "'");
  });
  if (names.empty()) return absl::NotFoundError("no model is served here");
  return absl::NotFoundError(absl::StrCat("--model: '", hello.model, "' is not served here; ",
                                          names, models_.size() > 1 ? " are" : " is"));
}

// ---- Drains ----

absl::StatusOr<Cluster::Draining> Cluster::DrainJob(const std::string& job_id,
                                                    absl::Duration timeout) {
  MutexLock lock(&mutex_);
  Job* found = nullptr;
  for (auto& [number, job] : jobs_) {
    if (job.id != job_id || job.over()) continue;
    if (found != nullptr) {
      return absl::FailedPreconditionError(
          absl::StrCat("two jobs call themselves ", job_id, ": end the one that is meant"));
    }
    found = &job;
  }
  if (found == nullptr) {
    return absl::NotFoundError(
        absl::StrCat("no job '", job_id, "' lives here; `skein status` shows those that do"));
  }
  Job& job = *found;
  Draining draining{.model = job.model->facts.name, .last_of_model = job.serves()};
  for (const auto& [number, other] : jobs_) {
    const bool serves = other.state == Job::State::kServing && &other != &job;
    if (serves && other.model == job.model) draining.last_of_model = false;
  }
  if (!job.serves()) {
    EndWell(job, "drained before it served", /*exit_code=*/0);
    return draining;
  }
  job.state = Job::State::kDraining;
  job.drain_until = clock_->Now() + timeout;
  const std::vector<ReplicaId> replicas = ReplicasOf(job);
  job.model->listener->OnReplicasDraining(replicas);
  draining.requests = job.model->listener->Outstanding(replicas);
  spdlog::info("job {}: draining: its {} requests may end within {}{}", job.id, draining.requests,
               absl::FormatDuration(timeout),
               draining.last_of_model ? "; no other job serves " + draining.model : "");
  return draining;
}

void Cluster::EndIfDrained(Job& job, absl::Time now) {
  if (job.state != Job::State::kDraining) return;
  const int64_t requests = job.model->listener->Outstanding(ReplicasOf(job));
  if (requests == 0) return EndWell(job, "drained", /*exit_code=*/0);
  if (now < job.drain_until) return;
  EndWell(job,
          absl::StrCat("drained, and its timeout passed: ", requests,
                       " requests are to go on with other jobs"),
          /*exit_code=*/0);
}

void Cluster::Shutdown(const std::string& reason, int exit_code) {
  MutexLock lock(&mutex_);
  shut_down_ = true;
  for (auto& [job_number, job] : jobs_) {
    if (!job.over()) EndWell(job, reason, exit_code);
  }
}

void Cluster::EndWell(Job& job, const std::string& why, int exit_code) {
  EndJob(job, Job::State::kEnded, why);
  for (auto& [number, rank] : job.ranks) {
    if (rank.link != nullptr) rank.link->SendShutdown(why, exit_code);
  }
}

}  // namespace skein::coordinator
