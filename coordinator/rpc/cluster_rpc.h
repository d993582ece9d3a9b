// skein.cluster.v1.Cluster over gRPC.
#pragma once

#include <functional>

#include "coordinator/cluster/cluster.h"
#include "proto/cluster.grpc.pb.h"

namespace skein::coordinator {

// Thread-safe.
class ClusterRpc final : public cluster::v1::Cluster::CallbackService {
 public:
  // What GetStatus tells beside the jobs.
  using Summary = std::function<cluster::v1::ClusterStatus()>;

  // The cluster outlives the service.
  ClusterRpc(Cluster* cluster, Summary summary) : cluster_(cluster), summary_(std::move(summary)) {}

  grpc::ServerBidiReactor<cluster::v1::WorkerMessage, cluster::v1::CoordinatorMessage>* Attach(
      grpc::CallbackServerContext* context) override;
  grpc::ServerUnaryReactor* GetStatus(grpc::CallbackServerContext* context,
                                      const cluster::v1::GetStatusRequest* request,
                                      cluster::v1::ClusterStatus* response) override;
  grpc::ServerUnaryReactor* GetJob(grpc::CallbackServerContext* context,
                                   const cluster::v1::GetJobRequest* request,
                                   cluster::v1::JobStatus* response) override;

 private:
  absl::Status FindJob(const cluster::v1::GetJobRequest& request, cluster::v1::JobStatus& response);

  Cluster* const cluster_;
  const Summary summary_;
};

}  // namespace skein::coordinator
