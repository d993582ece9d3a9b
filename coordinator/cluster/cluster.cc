#include "coordinator/cluster/cluster.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/status_macros.h"
#include "base/units.h"
#include "coordinator/cluster/hang.h"
#include "spdlog/spdlog.h"
#include "topology/machine.h"

namespace skein::coordinator {
namespace {

constexpr size_t kOverJobsKept = 8;  // in the status
// A survivor that fails names the dead as far as it knows; the stream of the dead ends within this
// time.
constexpr absl::Duration kFailureDelay = absl::Milliseconds(200);

std::string LayoutName(const plan::LayoutRequest& layout) {
  const std::string text = layout.ToString();
  return text.empty() ? "the coordinator's layout" : absl::StrCat("layout ", text);
}

void LogPlan(const plan::Plan& plan) {
  for (const auto line : absl::StrSplit(plan::FormatPlan(plan), '\n', absl::SkipEmpty())) {
    spdlog::info("{}", std::string(line));
  }
}

// How far steps may be from their prediction: cores are shared with other programs.
double ToleranceOf(const Job& job) { return HasGpus(job) ? 0.2 : 0.4; }

}  // namespace

Cluster::Cluster(Options options, const Clock* clock)
    : options_(std::move(options)), clock_(clock), last_tick_(clock->Now()) {}

absl::StatusOr<int32_t> Cluster::CheckHello(const attach::Hello& hello) const {
  MutexLock lock(&mutex_);
  return CheckClaim(hello);
}

absl::StatusOr<int32_t> Cluster::CheckClaim(const attach::Hello& hello) const {
  // Not Unavailable, which a rank would take for a coordinator that comes back.
  if (shut_down_) return absl::AbortedError("the coordinator is shutting down");
  SKEIN_ASSIGN_OR_RETURN(
      const int32_t protocol,
      attach::AgreeOnProtocol({RankName(hello), hello.version, hello.protocols},
                              {"the coordinator", options_.version, options_.protocols}));
  if (hello.job_id.empty()) return absl::InvalidArgumentError("job_id: empty");
  if (hello.job_size < 1 || hello.job_size > attach::kMaxJobSize) {
    return absl::InvalidArgumentError(
        absl::StrCat("job_size: ", hello.job_size, " is not in [1, ", attach::kMaxJobSize, "]"));
  }
  if (hello.rank < 0 || hello.rank >= hello.job_size) {
    return absl::InvalidArgumentError(
        absl::StrCat("rank: ", hello.rank, " is not in [0, ", hello.job_size - 1, "]"));
  }
  return protocol;
}

absl::StatusOr<Cluster::JobNumber> Cluster::FindOrAddJob(const attach::Hello& hello,
                                                         int32_t protocol) {
  for (const auto& [number, job] : jobs_) {
    if (job.id != hello.job_id || job.key != hello.job_key) continue;
    if (job.over()) {
      return absl::FailedPreconditionError(absl::StrCat("job ", job.id, " is over: ", job.detail));
    }
    if (!hello.model.empty() && !HasName(*job.model, hello.model)) {
      return absl::FailedPreconditionError(
          absl::StrCat(RankName(hello), " asks for the model '", hello.model, "' in job ", job.id,
                       ", which serves '", job.model->facts.name,
                       "'; give all ranks of a job the same --model"));
    }
    if (job.size != hello.job_size) {
      return absl::FailedPreconditionError(absl::StrCat(RankName(hello), " says that job ", job.id,
                                                        " has ", hello.job_size,
                                                        " ranks; others said ", job.size));
    }
    if (job.version != hello.version || job.protocol != protocol) {
      return absl::FailedPreconditionError(absl::StrCat(
          RankName(hello), " runs Skein ", hello.version, ", others of job ", job.id, " ",
          job.version,
          "; start all ranks of a job with the same worker, since they exchange bytes that other "
          "versions may lay out otherwise"));
    }
    if (job.layout != hello.layout) {
      return absl::FailedPreconditionError(absl::StrCat(
          RankName(hello), " asks for ", LayoutName(hello.layout), " in job ", job.id,
          ", others for ", LayoutName(job.layout), "; give all ranks of a job the same --layout"));
    }
    if (const auto there = job.ranks.find(hello.rank); there != job.ranks.end()) {
      return absl::AlreadyExistsError(
          absl::StrCat("rank ", hello.rank, " of job ", job.id,
                       " is attached already: ", RankName(there->second.hello)));
    }
    return number;
  }
  for (const auto& [number, job] : jobs_) {
    if (job.id != hello.job_id || job.over()) continue;
    spdlog::warn("job {}: {} claims to be of it, but has another key: it begins another job",
                 job.id, RankName(hello));
  }
  SKEIN_ASSIGN_OR_RETURN(std::shared_ptr<const JobModel> model, ChooseModel(hello));
  const JobNumber number = next_job_;
  ++next_job_;
  Job& job = jobs_[number];
  job.model = std::move(model);
  job.id = hello.job_id;
  job.key = hello.job_key;
  job.version = hello.version;
  job.protocol = protocol;
  job.layout = hello.layout;
  job.size = hello.job_size;
  spdlog::info("job {}: the first of {} ranks has attached, to serve {}, Skein {}, protocol {}",
               job.id, hello.job_size, job.model->facts.name, job.version, protocol);
  return number;
}

absl::StatusOr<Cluster::RankId> Cluster::Attach(const attach::Hello& hello,
                                                std::shared_ptr<RankLink> link) {
  RankId id;
  {
    MutexLock lock(&mutex_);
    SKEIN_ASSIGN_OR_RETURN(const int32_t protocol, CheckClaim(hello));
    SKEIN_ASSIGN_OR_RETURN(const JobNumber number, FindOrAddJob(hello, protocol));
    id = {number, hello.rank};
    Job& job = jobs_.at(number);
    job.ranks[hello.rank] = {.state = Rank::State::kAttached,
                             .hello = hello,
                             .link = std::move(link),
                             .last_heard = clock_->Now()};
    spdlog::debug("job {}: {} has attached", job.id, RankName(hello));
    if (!job.AllRanksAre(Rank::State::kAttached)) return id;
    job.state = Job::State::kLoading;
  }
  PlanAndLoad(id.job);
  return id;
}

Rank* Cluster::FindLive(RankId id, Job** job) {
  const auto found = jobs_.find(id.job);
  if (found == jobs_.end() || found->second.over()) return nullptr;
  *job = &found->second;
  return &found->second.ranks.at(id.rank);
}

void Cluster::PlanAndLoad(JobNumber job_number) {
  std::shared_ptr<const JobModel> model;
  plan::Constraints constraints;
  std::vector<topology::RankReport> reports;
  {
    MutexLock lock(&mutex_);
    const Job& job = jobs_.at(job_number);
    model = job.model;
    constraints = model->constraints;
    if (job.layout != plan::LayoutRequest()) constraints.layout = job.layout;
    for (const auto& [number, rank] : job.ranks) {
      reports.push_back({rank.hello.node, rank.hello.device, rank.hello.told});
    }
  }
  topology::Machine machine = topology::MachineFromRanks(reports);
  auto planning = options_.planner(machine, model->facts, constraints);

  MutexLock lock(&mutex_);
  const auto found = jobs_.find(job_number);
  if (found == jobs_.end() || found->second.over()) return;  // its ranks have heard why
  Job& job = found->second;
  job.machine = std::move(machine);
  if (!planning.ok()) return Refuse(job, planning.status());
  job.plan = std::move(planning->plans.front());
  job.plan->job_id = job.id;
  job.activities.resize(job.size);
  spdlog::info("job {}: all {} ranks are here; the plan:", job.id, job.ranks.size());
  LogPlan(*job.plan);
  for (auto& [number, rank] : job.ranks) {
    rank.state = Rank::State::kLoading;
    rank.link->SendPlan(*job.plan);
  }
}

void Cluster::OnHeartbeat(RankId id, attach::Heartbeat heartbeat) {
  MutexLock lock(&mutex_);
  Job* job = nullptr;
  Rank* rank = FindLive(id, &job);
  if (rank == nullptr) return;
  rank->last_heard = clock_->Now();
  if (heartbeat.times.has_value()) rank->times.Add(rank->last_heard, *heartbeat.times);
  if (job->activities.empty()) return;  // it waits for nobody of a job that is not there
  RankActivity activity{std::exchange(heartbeat.progress, {})};
  if (activity.operation.has_value()) {
    std::vector<int>& others = activity.operation->others;
    std::erase_if(others, [&](int other) { return other < 0 || other >= job->size; });
    std::sort(others.begin(), others.end());
    others.erase(std::unique(others.begin(), others.end()), others.end());
  }
  job->activities[id.rank] = std::move(activity);
  rank->heartbeat = std::move(heartbeat);
}

void Cluster::OnReady(RankId id, const attach::Ready& ready) {
  MutexLock lock(&mutex_);
  Job* job = nullptr;
  Rank* rank = FindLive(id, &job);
  if (rank == nullptr) return;
  rank->last_heard = clock_->Now();
  if (rank->state != Rank::State::kLoading) return Lose(*job, *rank, "it was ready out of turn");
  rank->ready = ready;
  for (const auto& [job_number, other] : jobs_) {
    if (other.over() || other.model != job->model) continue;
    const absl::Status slices = CheckSlices(*job, *rank, other);
    if (!slices.ok()) return Refuse(*job, slices);
  }
  rank->state = Rank::State::kReady;
  if (job->AllRanksAre(Rank::State::kReady)) Serve(*job);
}

void Cluster::Serve(Job& job) {
  job.state = Job::State::kServing;
  absl::Duration slowest;
  int64_t bytes = 0;
  for (const auto& [number, rank] : job.ranks) {
    slowest = std::max(slowest, rank.ready.load_time);
    bytes += rank.ready.bytes_read;
  }
  spdlog::info("job {} serves with {}: {} read in {:.2f} s", job.id,
               FormatCount(job.plan->layout.dp_size, "replica"), FormatBytes(bytes),
               absl::ToDoubleSeconds(slowest));
  std::vector<StepPredictor> predictors = PredictorsOf(job);
  for (int32_t i = 0; i < job.plan->layout.dp_size; ++i) {
    const serving::ReplicaLoad idle = {.total_pages = job.plan->pages,
                                       .free_pages = job.plan->pages,
                                       .total_swap_pages = job.plan->swap_pages,
                                       .free_swap_pages = job.plan->swap_pages};
    job.replicas.push_back({.id = next_replica_,
                            .load = idle,
                            .steps = PredictionWatch(ToleranceOf(job)),
                            .predictor = std::move(predictors[i])});
    job.model->listener->OnReplicaUp({.id = next_replica_,
                                      .name = absl::StrCat("replica ", i, " of job ", job.id),
                                      .max_num_seqs = job.plan->max_num_seqs,
                                      .leader = job.ranks.at(job.plan->At(i, 0, 0).rank).link,
                                      .page_size = job.plan->page_size,
                                      .pages = job.plan->pages,
                                      .context_length = job.plan->context_length});
    ++next_replica_;
  }
}

void Cluster::OnStep(RankId id, const serving::StepOutput& output) {
  ReplicaId replica_id;
  std::shared_ptr<ReplicaListener> listener;
  {
    MutexLock lock(&mutex_);
    Job* job = nullptr;
    Rank* rank = FindLive(id, &job);
    if (rank == nullptr) return;
    const absl::Time now = clock_->Now();
    rank->last_heard = now;
    if (!job->serves()) {
      return Lose(*job, *rank, "it sent a step's output before its job served");
    }
    const plan::RankPlan* const part = job->plan->Find(id.rank);
    if (part == nullptr || part->pp_rank != 0 || part->tp_rank != 0) {
      return Lose(*job, *rank, "it sent a step's output, which only leaders may");
    }
    Replica& replica = job->replicas[part->dp_rank];
    int64_t tokens = 0;
    for (const serving::AnswerOutput& answer : output.answers) {
      tokens += static_cast<int64_t>(answer.tokens.size());
    }
    replica.rate.Add(now, tokens);
    replica.tokens_total += tokens;
    replica.load = output.load;
    replica.steps.TakeUp(output.load);
    replica_id = replica.id;
    listener = job->model->listener;
  }
  const absl::Status accepted = listener->OnStepOutput(replica_id, output);
  if (accepted.ok()) return;
  MutexLock lock(&mutex_);
  Job* job = nullptr;
  Rank* rank = FindLive(id, &job);
  if (rank == nullptr) return;
  Lose(*job, *rank, absl::StrCat("it reported what cannot be: ", std::string(accepted.message())));
}

void Cluster::OnFailure(RankId id, const absl::Status& status) {
  MutexLock lock(&mutex_);
  Job* job = nullptr;
  Rank* rank = FindLive(id, &job);
  if (rank == nullptr) return CloseOfOver(id);
  if (!rank->failure.empty()) return;
  rank->failure = std::string(status.message());
  rank->failed_at = clock_->Now();
}

void Cluster::CloseOfOver(RankId id) {
  const auto found = jobs_.find(id.job);
  if (found == jobs_.end()) return;
  Rank& rank = found->second.ranks.at(id.rank);
  if (rank.link == nullptr) return;
  std::exchange(rank.link, nullptr)->Close(absl::AbortedError(found->second.detail));
}

void Cluster::OnGone(RankId id, const absl::Status& status) {
  MutexLock lock(&mutex_);
  const auto found = jobs_.find(id.job);
  if (found == jobs_.end()) return;
  Rank& rank = found->second.ranks.at(id.rank);
  rank.link = nullptr;
  if (!found->second.over()) {
    if (!rank.failure.empty()) return;  // Tick tells
    return Lose(found->second, rank,
                absl::StrCat("its connection ended (", std::string(status.message()), ")"));
  }
  if (rank.state != Rank::State::kLost) rank.state = Rank::State::kEnded;
}

void Cluster::Tick() {
  FindLost();
  CompareSteps();
}

void Cluster::FindLost() {
  MutexLock lock(&mutex_);
  const absl::Time now = clock_->Now();
  const absl::Duration timeout = options_.heartbeat_timeout;
  // When this process itself was stopped, heartbeats wait unread: ranks are not to blame.
  const bool was_asleep = now - std::exchange(last_tick_, now) > timeout / 2;
  for (auto& [job_number, job] : jobs_) {
    Rank* const failed = FirstToFail(job);
    if (failed != nullptr && !job.over() && now - failed->failed_at >= kFailureDelay) {
      Lose(job, *failed, failed->failure);
    }
    for (auto& [number, rank] : job.ranks) {
      if (rank.link == nullptr) continue;
      if (job.over()) {
        if (now - job.over_since < timeout) continue;
        std::exchange(rank.link, nullptr)->Close(absl::AbortedError(job.detail));
      } else if (was_asleep || job.is_planned()) {  // the thread that plans hears no heartbeats
        rank.last_heard = now;
        rank.steps.Restart(now);
        rank.heartbeat.threads.clear();
      } else if (now - rank.last_heard > timeout) {
        Lose(job, rank,
             absl::StrCat("it has been silent for ",
                          absl::ToInt64Milliseconds(now - rank.last_heard), " ms; ",
                          job.activities.empty() ? "not all ranks of its job have come"
                                                 : DescribeLoss(job.activities, number)));
      } else if (const absl::Status moves = CheckMoves(job, rank, now); !moves.ok()) {
        Lose(job, rank, std::string(moves.message()));
      }
    }
    EndIfDrained(job, now);
    if (job.over() || job.activities.empty()) continue;
    for (const auto& [number, rank] : job.ranks) {
      job.activities[number].age = now - rank.last_heard;
    }
    if (const std::optional<Hang> hang = FindHang(job.activities)) {
      Lose(job, job.ranks.at(hang->rank), hang->why);
    }
  }
  ForgetOldJobs();
}

absl::Status Cluster::CheckMoves(const Job& job, Rank& rank, absl::Time now) const {
  if (job.activities.empty()) return absl::OkStatus();  // it has nothing to do
  for (const auto& [thread, still] : rank.heartbeat.threads) {
    if (still <= options_.progress_timeout) continue;
    return absl::AbortedError(absl::StrCat(
        "its thread '", thread, "' has not moved for ",
        absl::FormatDuration(absl::Seconds(std::round(absl::ToDoubleSeconds(still))))));
  }
  const std::optional<absl::Duration> overdue = rank.steps.Overdue(
      rank.link->messages_sent(), rank.heartbeat.messages_taken, now, options_.progress_timeout);
  if (!overdue.has_value()) return absl::OkStatus();
  return absl::AbortedError(absl::StrCat(
      "it has not taken up what was sent to it ", absl::ToInt64Milliseconds(*overdue),
      " ms ago, though its heartbeats come: its network holds bytes back, or the thread that reads "
      "is stuck"));
}

void Cluster::Lose(Job& job, Rank& culprit, const std::string& why) {
  const std::string reason = absl::StrCat(RankName(culprit.hello), " is lost: ", why);
  culprit.state = Rank::State::kLost;
  EndJob(job, Job::State::kLost, reason);
  for (auto& [number, rank] : job.ranks) {
    if (rank.link == nullptr) continue;
    // A rank that said why it ends waits for this.
    if (&rank == &culprit || !rank.failure.empty()) {
      std::exchange(rank.link, nullptr)->Close(absl::AbortedError(reason));
    } else {
      rank.link->SendShutdown(reason, /*exit_code=*/1);
    }
  }
}

void Cluster::Refuse(Job& job, const absl::Status& why) {
  EndJob(job, Job::State::kLost, absl::StrCat("refused: ", std::string(why.message())));
  for (auto& [number, rank] : job.ranks) {
    if (rank.link != nullptr) std::exchange(rank.link, nullptr)->Close(why);
  }
}

void Cluster::EndJob(Job& job, Job::State state, const std::string& why) {
  spdlog::log(state == Job::State::kLost ? spdlog::level::err : spdlog::level::info,
              "job {}: {}: {}", job.id, StateName(state), why);
  job.model->listener->OnReplicasDown(
      ReplicasOf(job), absl::UnavailableError(absl::StrCat("job ", job.id, " is gone: ", why)));
  job.state = state;
  job.detail = why;
  job.over_since = clock_->Now();
}

void Cluster::ForgetOldJobs() {
  auto over = static_cast<size_t>(std::count_if(
      jobs_.begin(), jobs_.end(), [](const auto& entry) { return entry.second.over(); }));
  for (auto it = jobs_.begin(); it != jobs_.end() && over > kOverJobsKept;) {
    if (!it->second.over()) {
      ++it;
      continue;
    }
    for (auto& [number, rank] : it->second.ranks) {
      if (rank.link != nullptr) rank.link->Close(absl::AbortedError(it->second.detail));
    }
    it = jobs_.erase(it);
    --over;
  }
}

int64_t Cluster::attached_ranks() const {
  MutexLock lock(&mutex_);
  int64_t count = 0;
  for (const auto& [number, job] : jobs_) {
    count += std::count_if(job.ranks.begin(), job.ranks.end(),
                           [](const auto& entry) { return entry.second.link != nullptr; });
  }
  return count;
}

std::vector<JobStatus> Cluster::Status() const {
  MutexLock lock(&mutex_);
  std::vector<const Job*> jobs;
  for (const auto& [number, job] : jobs_) jobs.push_back(&job);
  const auto place = [](const Job& job) {
    return std::make_tuple(job.over(), !job.serves(), absl::UnixEpoch() - job.over_since);
  };
  std::stable_sort(jobs.begin(), jobs.end(),
                   [&](const Job* a, const Job* b) { return place(*a) < place(*b); });
  std::vector<JobStatus> status;
  for (const Job* job : jobs) status.push_back(StatusOfJob(*job, clock_->Now()));
  return status;
}

std::optional<JobStatus> Cluster::Find(const std::string& job_id, const std::string& key) const {
  MutexLock lock(&mutex_);
  for (const auto& [number, job] : jobs_) {
    if (job.id == job_id && job.key == key) return StatusOfJob(job, clock_->Now());
  }
  return std::nullopt;
}

}  // namespace skein::coordinator
