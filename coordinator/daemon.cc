#include "coordinator/daemon.h"

#include <algorithm>
#include <string_view>
#include <thread>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "base/status_util.h"
#include "coordinator/service/load_served_model.h"
#include "spdlog/spdlog.h"

namespace skein::coordinator {
namespace {

// For workers to free their memory and leave MPI.
constexpr absl::Duration kWorkersEndWithin = absl::Seconds(5);

absl::Status ShuttingDown() { return absl::UnavailableError("the coordinator is shutting down"); }

}  // namespace

Daemon::Daemon(Options options, const Clock* clock)
    : options_(std::move(options)),
      clock_(clock),
      metrics_({.version = options_.cluster.version, .snapshot = [this] { return Snapshot(); }}),
      service_(&models_, clock, &metrics_.of_no_model()),
      cluster_(options_.cluster, clock),
      gateway_(&service_, options_.gatekeeper, Hooks()),
      metrics_server_(&metrics_) {
  if (options_.journal == nullptr) return;
  kept_.emplace(options_.kept, options_.journal, clock_);
  service_.KeepBy(&*kept_);
}

GatewayHooks Daemon::Hooks() {
  GatewayHooks hooks;
  hooks.on_answer = [this](std::string_view route, int status) {
    metrics_.OnHttpAnswer(route, status);
  };
  hooks.status = [this] { return server_.StatusJson(); };
  hooks.picture = [this](const std::string& job) { return cluster_.Picture(job); };
  if (!options_.metrics.has_value()) hooks.metrics = [this] { return MetricsAnswer(metrics_); };
  return hooks;
}

MetricsSnapshot Daemon::Snapshot() const {
  MetricsSnapshot snapshot{.jobs = cluster_.Status()};
  for (const HostedModel& hosted : models_.All()) {
    snapshot.models.push_back({hosted.model->name, hosted.dispatcher->counts()});
  }
  return snapshot;
}

absl::Status Daemon::Start() {
  if (kept_.has_value()) {
    kept_->Restore(&service_);
  }
  SKEIN_RETURN_IF_ERROR(server_.Start(options_.server, Parts()));
  if (options_.http.has_value()) SKEIN_RETURN_IF_ERROR(gateway_.Start(*options_.http));
  return options_.metrics.has_value() ? metrics_server_.Start(*options_.metrics) : absl::OkStatus();
}

void Daemon::Shutdown(absl::Duration grace) {
  std::thread http([&] { gateway_.Shutdown(grace); });
  server_.Shutdown(grace);
  http.join();
  metrics_server_.Shutdown(absl::ZeroDuration());  // a scrape sees the end, too
}

// ---- Models ----

void Daemon::NoteServing(const std::string& name, bool serving) {
  MutexLock lock(&serving_mutex_);
  if (serving) {
    serving_.insert(name);
  } else {
    serving_.erase(name);
  }
  server_.SetServing(!serving_.empty());
}

absl::Status Daemon::AddModel(ServedModel model, const ModelLimits& limits) {
  const auto served = std::make_shared<const ServedModel>(std::move(model));
  HostedModel hosted{
      .model = served,
      .dispatcher = std::make_shared<Dispatcher>(
          Dispatcher::Options{.max_queue = limits.max_queue,
                              .max_retries = options_.max_retries,
                              .replica_wait = options_.replica_wait,
                              .on_serving = [this, name = served->name](
                                                bool serving) { NoteServing(name, serving); }},
          clock_),
      .observer = &latencies_.Over(&metrics_.observer(served->name, served->context_length))};
  JobModel of_jobs{.facts = {served->name, served->path, served->identity, served->config},
                   .aliases = served->aliases,
                   .constraints = limits.constraints,
                   .listener = hosted.dispatcher};
  of_jobs.constraints.context_length = served->context_length;
  MutexLock lock(&change_mutex_);
  if (draining_) return ShuttingDown();
  SKEIN_RETURN_IF_ERROR(models_.Add(std::move(hosted)));
  cluster_.AddModel(std::move(of_jobs));
  spdlog::info("model {} from {}: {} parameters, context {}, identity {}", served->name,
               served->path, served->config.ParameterCount(), served->context_length,
               served->identity);
  return absl::OkStatus();
}

absl::StatusOr<std::string> Daemon::AddModel(const std::string& argument) {
  absl::StatusOr<ModelArgument> asked = ParseModelArgument(argument, options_.model);
  if (!asked.ok()) return Annotate(asked.status(), "model");
  if (asked->names.empty()) asked->names = {NameOfPath(asked->path)};
  SKEIN_RETURN_IF_ERROR(models_.Reserve(asked->names));
  const absl::Cleanup release = [&] { models_.Release(asked->names); };
  spdlog::info("loading {}", asked->path);
  SKEIN_ASSIGN_OR_RETURN(ServedModel model,
                         LoadServedModel(asked->path, asked->limits.constraints.context_length,
                                         asked->chat_template, asked->names));
  std::string name = model.name;
  SKEIN_RETURN_IF_ERROR(AddModel(std::move(model), asked->limits));
  return name;
}

absl::StatusOr<Admin::RemovedModel> Daemon::RemoveModel(const std::string& name,
                                                        std::optional<absl::Duration> timeout) {
  MutexLock lock(&change_mutex_);
  if (draining_) return ShuttingDown();
  if (name.empty()) return absl::InvalidArgumentError("name: is missing");
  SKEIN_ASSIGN_OR_RETURN(const HostedModel hosted, models_.Find(name));
  const std::string& own = hosted.model->name;
  const absl::Time until = clock_->Now() + timeout.value_or(options_.drain_timeout);
  const auto before = std::find_if(removals_.begin(), removals_.end(), [&](const Removal& other) {
    return other.hosted.model == hosted.model;
  });
  if (before != removals_.end()) {
    before->until = until;
  } else {
    hosted.dispatcher->StartDrain(absl::StrCat("model '", own, "' is being removed"));
    removals_.push_back({hosted, until});
  }
  const Dispatcher::Counts counts = hosted.dispatcher->counts();
  const RemovedModel removed{
      .name = own, .requests = counts.running + counts.queued, .jobs = cluster_.jobs_of(own)};
  spdlog::info("removing model {}: its {} requests may end within {}", own, removed.requests,
               absl::FormatDuration(until - clock_->Now()));
  return removed;
}

void Daemon::EndRemovals(absl::Time now) {
  MutexLock lock(&change_mutex_);
  std::erase_if(removals_, [&](const Removal& removal) {
    const Dispatcher::Counts counts = removal.hosted.dispatcher->counts();
    if (counts.running + counts.queued > 0 && now < removal.until) return false;
    const std::string& name = removal.hosted.model->name;
    const std::string why = absl::StrCat("model '", name, "' is removed");
    removal.hosted.dispatcher->FailAll(
        absl::UnavailableError(absl::StrCat(why, ", and its drain timeout passed")));
    models_.Remove(name);
    cluster_.RemoveModel(name, why, /*exit_code=*/0);
    spdlog::info("{}", why);
    return true;
  });
}

absl::StatusOr<Cluster::Draining> Daemon::DrainJob(const std::string& job_id,
                                                   std::optional<absl::Duration> timeout) {
  return cluster_.DrainJob(job_id, timeout.value_or(options_.drain_timeout));
}

// ---- The end ----

void Daemon::StartDrain() {
  if (phase_ != Phase::kServing) return;
  MutexLock lock(&change_mutex_);
  draining_ = true;
  const Dispatcher::Counts counts = models_.counts();
  spdlog::info("draining: {} running and {} queued requests may end within {}", counts.running,
               counts.queued, absl::FormatDuration(options_.drain_timeout));
  if (kept_.has_value()) kept_->StartDrain();
  for (const HostedModel& hosted : models_.All()) hosted.dispatcher->StartDrain();
  phase_ = Phase::kFinishingRequests;
  phase_ends_ = clock_->Now() + options_.drain_timeout;
}

void Daemon::Tick() {
  cluster_.Tick();
  const std::vector<HostedModel> models = models_.All();
  for (const HostedModel& hosted : models) hosted.dispatcher->Tick();
  if (kept_.has_value()) kept_->Tick();
  const absl::Time now = clock_->Now();
  latencies_.Tick(now);
  EndRemovals(now);
  const bool late = now >= phase_ends_;
  if (phase_ == Phase::kFinishingRequests) {
    const Dispatcher::Counts counts = models_.counts();
    if (counts.running + counts.queued > 0 && !late) return;
    for (const HostedModel& hosted : models) {
      hosted.dispatcher->FailAll(
          absl::UnavailableError("the coordinator is shutting down, and its drain timeout passed"));
    }
    cluster_.Shutdown("the coordinator is shutting down", /*exit_code=*/0);
    phase_ = Phase::kEndingWorkers;
    phase_ends_ = clock_->Now() + kWorkersEndWithin;
  } else if (phase_ == Phase::kEndingWorkers) {
    const int64_t ranks = cluster_.attached_ranks();
    if (ranks > 0 && !late) return;
    if (ranks > 0) spdlog::warn("{} ranks are still attached", ranks);
    phase_ = Phase::kDrained;
  }
}

}  // namespace skein::coordinator
