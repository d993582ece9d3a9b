// Everything that a coordinator's process consists of, but its flags and signals.
#pragma once

#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "coordinator/cluster/cluster.h"
#include "coordinator/gateway/gatekeeper.h"
#include "coordinator/gateway/gateway.h"
#include "coordinator/gateway/http_server.h"
#include "coordinator/journal/journal.h"
#include "coordinator/metrics/metrics.h"
#include "coordinator/metrics/metrics_server.h"
#include "coordinator/model_argument.h"
#include "coordinator/rpc/admin.h"
#include "coordinator/rpc/server.h"
#include "coordinator/service/inference_service.h"
#include "coordinator/service/kept_answers.h"
#include "coordinator/service/latency_watch.h"
#include "coordinator/service/model_registry.h"
#include "coordinator/service/served_model.h"

namespace skein::coordinator {

// Owned and driven by one thread, which calls Tick several times a second; gRPC's threads do the
// rest, and add and remove models. The clock outlives it.
class Daemon final : public Admin {
 public:
  struct Options {
    Server::Options server;
    std::optional<HttpServerOptions> http;  // none: no HTTP
    // HOST:PORT of metrics alone; none: `http` has them, where it is.
    std::optional<std::string> metrics;
    Gatekeeper::Options gatekeeper;  // of HTTP
    Cluster::Options cluster;
    ModelArgument model;  // what models have that say nothing else
    // See Dispatcher::Options.
    int64_t max_retries = 3;
    absl::Duration replica_wait = absl::Seconds(30);
    absl::Duration drain_timeout = absl::Seconds(30);
    Journal* journal = nullptr;  // outlives the daemon; none: answers end with their clients
    KeptAnswers::Options kept;   // in it
  };

  // It has no model yet.
  Daemon(Options options, const Clock* clock);

  // Serves it from now on; any thread, at any time. AlreadyExists: a name is another model's;
  // Unavailable: the coordinator shuts down.
  absl::Status AddModel(ServedModel model, const ModelLimits& limits);

  // These are Admin's, for any thread.
  absl::StatusOr<std::string> AddModel(const std::string& argument) override;
  absl::StatusOr<RemovedModel> RemoveModel(const std::string& name,
                                           std::optional<absl::Duration> timeout) override;
  absl::StatusOr<Cluster::Draining> DrainJob(const std::string& job_id,
                                             std::optional<absl::Duration> timeout) override;

  // Listens. See Server::Start, Gateway::Start and MetricsServer::Start.
  absl::Status Start();
  const std::string& address() const { return server_.address(); }
  const std::string& http_address() const { return gateway_.address(); }  // where there is HTTP

  const std::string& metrics_address() const { return metrics_server_.address(); }  // as above

  // Looks for silent ranks and requests that waited too long, and takes a drain's next step.
  void Tick();

  // See HttpServer.
  absl::Status ReloadTls() { return gateway_.ReloadTls(); }
  // Of gRPC. See Server.
  absl::Status UseCertificates(const MutualTls& tls) { return server_.UseCertificates(tls); }

  // From now on: no new request; what runs may end within drain_timeout; then workers are told to
  // exit 0 and have a few seconds for it. Again: nothing new.
  void StartDrain();
  bool drained() const { return phase_ == Phase::kDrained; }

  // Ends every stream; what clients have yet to read may go out within `grace`.
  void Shutdown(absl::Duration grace);

 private:
  enum class Phase { kServing, kFinishingRequests, kEndingWorkers, kDrained };
  // A model that is being removed.
  struct Removal {
    HostedModel hosted;
    absl::Time until;
  };

  GatewayHooks Hooks();
  Server::Parts Parts() { return {&service_, &cluster_, this, &latencies_, clock_}; }
  MetricsSnapshot Snapshot() const;
  // Told by dispatchers, under their locks.
  void NoteServing(const std::string& name, bool serving);
  void EndRemovals(absl::Time now);

  const Options options_;
  const Clock* const clock_;

  Mutex serving_mutex_;
  std::set<std::string> serving_ ABSL_GUARDED_BY(serving_mutex_);  // names of models
  Mutex change_mutex_;  // is held while models are added, begin to be removed, or all are drained
  bool draining_ ABSL_GUARDED_BY(change_mutex_) = false;
  std::vector<Removal> removals_ ABSL_GUARDED_BY(change_mutex_);

  // Servers go first: nothing may call the others when they go.
  Metrics metrics_;
  LatencyWatch latencies_;  // of all models
  ModelRegistry models_;
  InferenceService service_;
  std::optional<KeptAnswers> kept_;
  Cluster cluster_;
  Server server_;
  Gateway gateway_;
  MetricsServer metrics_server_;

  Phase phase_ = Phase::kServing;
  absl::Time phase_ends_;
};

}  // namespace skein::coordinator
