// Everything that a coordinator's process consists of, but its flags and signals.
#pragma once

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "coordinator/cluster/cluster.h"
#include "coordinator/gateway/gatekeeper.h"
#include "coordinator/gateway/gateway.h"
#include "coordinator/gateway/http_server.h"
#include "coordinator/metrics/metrics.h"
#include "coordinator/metrics/metrics_server.h"
#include "coordinator/rpc/server.h"
#include "coordinator/service/dispatcher.h"
#include "coordinator/service/inference_service.h"
#include "coordinator/service/served_model.h"

namespace skein::coordinator {

// Owned and driven by one thread, which calls Tick several times a second; gRPC's threads do the
// rest. The clock outlives it.
class Daemon {
 public:
  struct Options {
    Server::Options server;
    std::optional<HttpServerOptions> http;  // none: no HTTP
    // HOST:PORT of metrics alone; none: `http` has them, where it is.
    std::optional<std::string> metrics;
    Gatekeeper::Options gatekeeper;  // of HTTP
    Cluster::Options cluster;
    int64_t max_queue = 256;
    // See Dispatcher::Options.
    int64_t max_retries = 3;
    absl::Duration replica_wait = absl::Seconds(30);
    absl::Duration drain_timeout = absl::Seconds(30);
  };

  Daemon(Options options, ServedModel model, const Clock* clock);

  // Listens. See Server::Start, Gateway::Start and MetricsServer::Start.
  absl::Status Start();
  const std::string& address() const { return server_.address(); }
  const std::string& http_address() const { return gateway_.address(); }  // where there is HTTP

  const std::string& metrics_address() const { return metrics_server_.address(); }  // as above

  // Looks for silent ranks and requests that waited too long, and takes a drain's next step.
  void Tick();

  // See HttpServer.
  absl::Status ReloadTls() { return gateway_.ReloadTls(); }

  // From now on: no new request; what runs may end within drain_timeout; then workers are told to
  // exit 0 and have a few seconds for it. Again: nothing new.
  void StartDrain();
  bool drained() const { return phase_ == Phase::kDrained; }

  // Ends every stream; what clients have yet to read may go out within `grace`.
  void Shutdown(absl::Duration grace);

 private:
  enum class Phase { kServing, kFinishingRequests, kEndingWorkers, kDrained };

  GatewayHooks Hooks();
  Server::Parts Parts() { return {&service_, &dispatcher_, &cluster_, clock_}; }

  const Options options_;
  const Clock* const clock_;
  const ServedModel model_;
  // Servers go first: nothing may call the others when they go.
  Metrics metrics_;
  Dispatcher dispatcher_;
  InferenceService service_;
  Cluster cluster_;
  Server server_;
  Gateway gateway_;
  MetricsServer metrics_server_;

  Phase phase_ = Phase::kServing;
  absl::Time phase_ends_;
};

}  // namespace skein::coordinator
