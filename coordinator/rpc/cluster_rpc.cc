#include "coordinator/rpc/cluster_rpc.h"

#include "coordinator/rpc/attach_stream.h"
#include "coordinator/rpc/cluster_convert.h"

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

}  // namespace skein::coordinator
