#include "coordinator/daemon.h"

#include <string_view>
#include <thread>
#include <utility>

#include "base/status_macros.h"
#include "spdlog/spdlog.h"

namespace skein::coordinator {
namespace {

// For workers to free their memory and leave MPI.
constexpr absl::Duration kWorkersEndWithin = absl::Seconds(5);

plan::Constraints WithContext(plan::Constraints constraints, const ServedModel& model) {
  constraints.context_length = model.context_length;
  return constraints;
}

Cluster::Options ClusterOptions(Cluster::Options options, const ServedModel& model) {
  options.constraints = WithContext(options.constraints, model);
  return options;
}

}  // namespace

Daemon::Daemon(Options options, ServedModel model, const Clock* clock)
    : options_(std::move(options)),
      clock_(clock),
      model_(std::move(model)),
      metrics_({.version = options_.cluster.version,
                .model_name = model_.name,
                .context_length = model_.context_length,
                .snapshot =
                    [this] { return MetricsSnapshot{dispatcher_.counts(), cluster_.Status()}; }}),
      dispatcher_({.max_queue = options_.max_queue,
                   .max_retries = options_.max_retries,
                   .replica_wait = options_.replica_wait,
                   .on_serving = [this](bool serving) { server_.SetServing(serving); }},
                  clock),
      service_(&model_, &dispatcher_, clock, &metrics_.observer()),
      cluster_(ClusterOptions(options_.cluster, model_),
               {model_.name, model_.path, model_.identity, model_.config}, &dispatcher_, clock),
      gateway_(&service_, options_.gatekeeper, Hooks()),
      metrics_server_(&metrics_) {}

GatewayHooks Daemon::Hooks() {
  GatewayHooks hooks;
  hooks.on_answer = [this](std::string_view route, int status) {
    metrics_.OnHttpAnswer(route, status);
  };
  if (!options_.metrics.has_value()) hooks.metrics = [this] { return MetricsAnswer(metrics_); };
  return hooks;
}

absl::Status Daemon::Start() {
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

void Daemon::StartDrain() {
  if (phase_ != Phase::kServing) return;
  const Dispatcher::Counts counts = dispatcher_.counts();
  spdlog::info("draining: {} running and {} queued requests may end within {}", counts.running,
               counts.queued, absl::FormatDuration(options_.drain_timeout));
  dispatcher_.StartDrain();
  phase_ = Phase::kFinishingRequests;
  phase_ends_ = clock_->Now() + options_.drain_timeout;
}

void Daemon::Tick() {
  cluster_.Tick();
  dispatcher_.Tick();
  const bool late = clock_->Now() >= phase_ends_;
  if (phase_ == Phase::kFinishingRequests) {
    const Dispatcher::Counts counts = dispatcher_.counts();
    if (counts.running + counts.queued > 0 && !late) return;
    dispatcher_.FailAll(
        absl::UnavailableError("the coordinator is shutting down, and its drain timeout passed"));
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
