#include "coordinator/rpc/cluster_rpc.h"

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "coordinator/rpc/attach_stream.h"
#include "coordinator/rpc/cluster_convert.h"
#include "coordinator/rpc/grpc_status.h"

namespace skein::coordinator {

namespace wire = ::skein::cluster::v1;

grpc::ServerBidiReactor<wire::WorkerMessage, wire::CoordinatorMessage>* ClusterRpc::Attach(
    grpc::CallbackServerContext* context) {
  return AttachStream::Start(context, cluster_);
}

grpc::ServerUnaryReactor* ClusterRpc::GetStatus(grpc::CallbackServerContext* context,
                                                const wire::GetStatusRequest* /*request*/,
                                                wire::ClusterStatus* response) {
  *response = summary_();
  for (const JobStatus& job : cluster_->Status()) *response->add_jobs() = ToProto(job);
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(grpc::Status::OK);
  return reactor;
}

grpc::ServerUnaryReactor* ClusterRpc::GetJob(grpc::CallbackServerContext* context,
                                             const wire::GetJobRequest* request,
                                             wire::JobStatus* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(ToGrpc(FindJob(*request, *response)));
  return reactor;
}

absl::Status ClusterRpc::FindJob(const wire::GetJobRequest& request, wire::JobStatus& response) {
  SKEIN_ASSIGN_OR_RETURN(const JobKey key, FromProto(request));
  const std::optional<JobStatus> job = cluster_->Find(key.job_id, key.secret_digest);
  if (!job.has_value()) {
    return absl::NotFoundError(
        absl::StrCat("no rank of job ", key.job_id, " with this secret has attached"));
  }
  response = ToProto(*job);
  return absl::OkStatus();
}

}  // namespace skein::coordinator
