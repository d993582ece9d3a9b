// Runs the gRPC server of a coordinator.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/mutex.h"
#include "base/tls/mutual_tls.h"
#include "coordinator/cluster/cluster.h"
#include "coordinator/rpc/admin.h"
#include "coordinator/rpc/cluster_rpc.h"
#include "coordinator/service/inference_service.h"
#include "coordinator/service/latency_watch.h"

namespace skein::coordinator {

// Serves Inference, Cluster, Admin, grpc.health.v1 (for "" and "skein.v1.Inference") and server
// reflection on one port. Thread-safe after Start.
class Server {
 public:
  struct Options {
    std::string listen = "127.0.0.1:50051";  // HOST:PORT; port 0 takes a free one
    std::optional<MutualTls> tls;            // none: plain, and nobody is asked
    std::string version;                     // for the status
    ClusterRpc::Options cluster;
    // Connections are refused while the process has more file descriptors; 0: what the process may
    // have, less a reserve.
    int max_descriptors = 0;
  };

  // The parts that are served. All outlive the server.
  struct Parts {
    InferenceService* service = nullptr;
    Cluster* cluster = nullptr;
    Admin* admin = nullptr;
    const LatencyWatch* latencies = nullptr;
    const Clock* clock = nullptr;
  };

  Server();
  ~Server();  // ends every stream at once
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  // InvalidArgument for an address without a port; Unavailable names the address that cannot be
  // listened on, and why. Call it once.
  absl::Status Start(const Options& options, const Parts& parts);

  // Returns HOST:PORT, with the port that was taken.
  const std::string& address() const { return address_; }

  // What GetStatus answers, as `skein status --json` prints it. Once it has started; any thread.
  std::string StatusJson() const;

  // Shows new connections these certificates, and asks for those of their CA; those that are there
  // stay. After an error all is as before. Without Options::tls it does nothing. Once it has
  // started; any thread.
  absl::Status UseCertificates(const MutualTls& tls);

  // Sets what the health service says; may come before Start.
  void SetServing(bool serving);

  // Takes no new call, waits for those that run, then ends them. Blocks for at most about `grace`,
  // and until a model that AddModel is loading is there.
  void Shutdown(absl::Duration grace);

 private:
  class Impl;

  std::unique_ptr<Impl> impl_;
  std::string address_;
  Mutex mutex_;
  bool started_ ABSL_GUARDED_BY(mutex_) = false;
  bool serving_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace skein::coordinator
