#include "coordinator/rpc/cluster_rpc.h"

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "coordinator/cluster/rank_places.h"
#include "coordinator/rpc/attach_stream.h"
#include "coordinator/rpc/cluster_convert.h"
#include "coordinator/rpc/raw_message.h"
#include "proto/convert/attach.h"
#include "proto/convert/machines.h"
#include "topology/topology.h"

namespace skein::coordinator {

namespace wire = ::skein::cluster::v1;

grpc::ServerBidiReactor<wire::WorkerMessage, wire::CoordinatorMessage>* ClusterRpc::Attach(
    grpc::CallbackServerContext* context) {
  return AttachStream::Start(context, cluster_, &refusals_, options_.hello_time);
}

grpc::ServerUnaryReactor* ClusterRpc::GetStatus(grpc::CallbackServerContext* context,
                                                const grpc::ByteBuffer* request,
                                                grpc::ByteBuffer* response) {
  return AnswerUnary<wire::GetStatusRequest, wire::ClusterStatus>(
      context, {.name = "/skein.cluster.v1.Cluster/GetStatus", .is_routine = true}, *request,
      response, [this](const auto& /*request*/, auto& status) {
        status = status_();
        return absl::OkStatus();
      });
}

grpc::ServerUnaryReactor* ClusterRpc::GetJob(grpc::CallbackServerContext* context,
                                             const grpc::ByteBuffer* request,
                                             grpc::ByteBuffer* response) {
  return AnswerUnary<wire::GetJobRequest, wire::JobStatus>(
      context, {.name = "/skein.cluster.v1.Cluster/GetJob", .is_routine = true}, *request, response,
      [this](const auto& asked, auto& job) { return FindJob(asked, job); });
}

grpc::ServerUnaryReactor* ClusterRpc::GetTopology(grpc::CallbackServerContext* context,
                                                  const grpc::ByteBuffer* request,
                                                  grpc::ByteBuffer* response) {
  return AnswerUnary<wire::GetTopologyRequest, topology::v1::Topology>(
      context, {.name = "/skein.cluster.v1.Cluster/GetTopology", .is_routine = true}, *request,
      response, [this](const auto& /*request*/, auto& to) {
        SKEIN_ASSIGN_OR_RETURN(const LiveHosts live, cluster_->Hosts());
        to = convert::ToProto(live.topology);
        for (const auto& [job_id, place] : live.ranks) {
          topology::v1::PlacedRank& rank = *to.add_ranks();
          rank.set_job_id(job_id);
          rank.set_rank(place.rank);
          rank.set_replica(place.replica);
          rank.set_host(place.host);
          rank.set_gpu(place.gpu);
        }
        return absl::OkStatus();
      });
}

absl::Status ClusterRpc::FindJob(const wire::GetJobRequest& request,
                                 wire::JobStatus& response) const {
  SKEIN_RETURN_IF_ERROR(convert::CheckJob(request.job_id(), request.job_key()));
  const std::optional<JobStatus> job = cluster_->Find(request.job_id(), request.job_key());
  if (!job.has_value()) {
    return absl::NotFoundError(
        absl::StrCat("no rank of job ", request.job_id(), " with this key has attached"));
  }
  response = ToProto(*job);
  return absl::OkStatus();
}

}  // namespace skein::coordinator
