// Serves skein.cluster.v1.Cluster over gRPC.
#pragma once

#include <functional>
#include <utility>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "coordinator/cluster/cluster.h"
#include "coordinator/rpc/refusals.h"
#include "proto/cluster.grpc.pb.h"

namespace skein::coordinator {

// The methods that take one message get it as bytes: see raw_message.h.
using RawCluster = cluster::v1::Cluster::WithCallbackMethod_Attach<
    cluster::v1::Cluster::WithRawCallbackMethod_GetStatus<
        cluster::v1::Cluster::WithRawCallbackMethod_GetJob<
            cluster::v1::Cluster::WithRawCallbackMethod_GetTopology<
                cluster::v1::Cluster::Service>>>>;

// Thread-safe.
class ClusterRpc final : public RawCluster {
 public:
  // What GetStatus tells.
  using Status = std::function<cluster::v1::ClusterStatus()>;

  struct Options {
    absl::Duration hello_time = absl::Seconds(10);  // an Attach must prove within it who it is
  };

  // The cluster outlives the service.
  ClusterRpc(const Options& options, Cluster* cluster, Status status)
      : options_(options), cluster_(cluster), status_(std::move(status)) {}

  grpc::ServerBidiReactor<cluster::v1::WorkerMessage, cluster::v1::CoordinatorMessage>* Attach(
      grpc::CallbackServerContext* context) override;
  grpc::ServerUnaryReactor* GetStatus(grpc::CallbackServerContext* context,
                                      const grpc::ByteBuffer* request,
                                      grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* GetJob(grpc::CallbackServerContext* context,
                                   const grpc::ByteBuffer* request,
                                   grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* GetTopology(grpc::CallbackServerContext* context,
                                        const grpc::ByteBuffer* request,
                                        grpc::ByteBuffer* response) override;

 private:
  absl::Status FindJob(const cluster::v1::GetJobRequest& request,
                       cluster::v1::JobStatus& response) const;

  const Options options_;
  Cluster* const cluster_;
  const Status status_;
  Refusals refusals_;  // of ranks
};

}  // namespace skein::coordinator
