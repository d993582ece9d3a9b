#include "coordinator/rpc/admin_rpc.h"

#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/status_macros.h"
#include "coordinator/rpc/call_log.h"
#include "coordinator/rpc/grpc_status.h"
#include "coordinator/rpc/raw_message.h"

namespace skein::coordinator {
namespace {

// Nothing: the request says none.
template <typename Request>
absl::StatusOr<std::optional<absl::Duration>> TimeoutOf(const Request& request) {
  if (!request.has_timeout_seconds()) return std::nullopt;
  if (!(request.timeout_seconds() >= 0)) {
    return absl::InvalidArgumentError(
        absl::StrCat("timeout_seconds: ", request.timeout_seconds(), " is not 0 or more"));
  }
  return absl::Seconds(request.timeout_seconds());
}

absl::Status Remove(Admin& admin, const admin::v1::RemoveModelRequest& request,
                    admin::v1::RemoveModelResponse& response) {
  SKEIN_ASSIGN_OR_RETURN(const std::optional<absl::Duration> timeout, TimeoutOf(request));
  SKEIN_ASSIGN_OR_RETURN(const Admin::RemovedModel removed,
                         admin.RemoveModel(request.name(), timeout));
  response.set_name(removed.name);
  response.set_requests(removed.requests);
  response.set_jobs(removed.jobs);
  return absl::OkStatus();
}

absl::Status Drain(Admin& admin, const admin::v1::DrainJobRequest& request,
                   admin::v1::DrainJobResponse& response) {
  SKEIN_ASSIGN_OR_RETURN(const std::optional<absl::Duration> timeout, TimeoutOf(request));
  SKEIN_ASSIGN_OR_RETURN(const Cluster::Draining draining,
                         admin.DrainJob(request.job_id(), timeout));
  response.set_model_name(draining.model);
  response.set_requests(draining.requests);
  response.set_last_of_model(draining.last_of_model);
  return absl::OkStatus();
}

absl::StatusOr<admin::v1::AddModelResponse> Add(Admin& admin,
                                                const admin::v1::AddModelRequest& request) {
  std::string argument = request.model();
  for (const std::string& flag : request.flags()) absl::StrAppend(&argument, " ", flag);
  admin::v1::AddModelResponse response;
  SKEIN_ASSIGN_OR_RETURN(*response.mutable_name(), admin.AddModel(argument));
  return response;
}

}  // namespace

grpc::ServerUnaryReactor* AdminRpc::AddModel(grpc::CallbackServerContext* context,
                                             const grpc::ByteBuffer* request,
                                             grpc::ByteBuffer* response) {
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  const auto finish = [context, reactor, response,
                       began = absl::Now()](const absl::Status& status) {
    const grpc::Status end = ToGrpc(status);
    LogCall({.route = "/skein.admin.v1.Admin/AddModel",
             .code = end.error_code(),
             .answer_bytes = static_cast<int64_t>(response->Length()),
             .began = began},
            *RecordOf(*context));
    reactor->Finish(end);
  };
  admin::v1::AddModelRequest asked;
  if (const absl::Status parsed = ParseMessage(*request, asked); !parsed.ok()) {
    finish(parsed);
    return reactor;
  }
  // The server's end waits for the call, and so for all of the thread that uses the admin.
  std::thread([admin = admin_, finish, response, asked = std::move(asked)] {
    const absl::StatusOr<admin::v1::AddModelResponse> added = Add(*admin, asked);
    if (added.ok()) *response = SerializeMessage(*added);
    finish(added.status());
  }).detach();
  return reactor;
}

grpc::ServerUnaryReactor* AdminRpc::RemoveModel(grpc::CallbackServerContext* context,
                                                const grpc::ByteBuffer* request,
                                                grpc::ByteBuffer* response) {
  return AnswerUnary<admin::v1::RemoveModelRequest, admin::v1::RemoveModelResponse>(
      context, {.name = "/skein.admin.v1.Admin/RemoveModel"}, *request, response,
      [this](const auto& asked, auto& removed) { return Remove(*admin_, asked, removed); });
}

grpc::ServerUnaryReactor* AdminRpc::DrainJob(grpc::CallbackServerContext* context,
                                             const grpc::ByteBuffer* request,
                                             grpc::ByteBuffer* response) {
  return AnswerUnary<admin::v1::DrainJobRequest, admin::v1::DrainJobResponse>(
      context, {.name = "/skein.admin.v1.Admin/DrainJob"}, *request, response,
      [this](const auto& asked, auto& drained) { return Drain(*admin_, asked, drained); });
}

}  // namespace skein::coordinator
