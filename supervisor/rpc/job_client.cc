#include "supervisor/rpc/job_client.h"

#include <grpcpp/client_context.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/support/channel_arguments.h>

#include <array>
#include <chrono>
#include <map>
#include <string_view>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/mutex.h"
#include "base/printable.h"
#include "base/tls/job_key.h"
#include "proto/cluster.grpc.pb.h"
#include "proto/credentials/credentials.h"

namespace skein::supervisor {
namespace {

namespace wire = ::skein::cluster::v1;

std::shared_ptr<grpc::Channel> MakeChannel(const std::string& coordinator,
                                           const std::optional<MutualTls>& tls) {
  grpc::ChannelArguments arguments;
  // A coordinator that was started again is found within a second.
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 1000);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 1000);
  return grpc::CreateCustomChannel(coordinator, ChannelCredentialsOf(tls), arguments);
}

JobInfo::State StateOf(std::string_view name) {
  using State = JobInfo::State;
  constexpr std::array<std::pair<std::string_view, State>, 6> kStates = {{
      {"waiting for ranks", State::kWaiting},
      {"loading", State::kLoading},
      {"serving", State::kServing},
      {"draining", State::kServing},
      {"lost", State::kLost},
      {"ended", State::kEnded},
  }};
  for (const auto& [text, state] : kStates) {
    if (text == name) return state;
  }
  return State::kCannotTell;
}

JobInfo InfoOf(const grpc::Status& status, const wire::JobStatus& job, bool with_tls) {
  switch (status.error_code()) {
    case grpc::StatusCode::OK:
      return {StateOf(job.state()), Printable(job.detail())};
    case grpc::StatusCode::NOT_FOUND:
      return {JobInfo::State::kUnknown, ""};
    case grpc::StatusCode::UNAVAILABLE:
      // gRPC tells a refused connection from a host that is cut off by its text only.
      if (absl::StrContains(status.error_message(), "Connection refused")) {
        return {JobInfo::State::kGone, Printable(status.error_message())};
      }
      if (const std::string hint = TlsHint(status.error_message(), with_tls); !hint.empty()) {
        return {JobInfo::State::kNoAnswer,
                absl::StrCat(Printable(status.error_message()), "; ", hint)};
      }
      [[fallthrough]];
    case grpc::StatusCode::CANCELLED:
    case grpc::StatusCode::DEADLINE_EXCEEDED:
      return {JobInfo::State::kNoAnswer, Printable(status.error_message())};
    default:
      return {JobInfo::State::kCannotTell, Printable(status.error_message())};
  }
}

}  // namespace

struct JobClient::Call {
  grpc::ClientContext context;
  wire::GetJobRequest request;
  wire::JobStatus job;
  std::function<void(JobInfo)> done;
};

struct JobClient::Calls {
  Calls(const std::string& coordinator, const std::optional<MutualTls>& tls)
      : stub(wire::Cluster::NewStub(MakeChannel(coordinator, tls))), with_tls(tls.has_value()) {}

  const std::unique_ptr<wire::Cluster::Stub> stub;
  const bool with_tls;
  Mutex mutex;
  CondVar ended;
  std::map<Call*, std::unique_ptr<Call>> under_way ABSL_GUARDED_BY(mutex);
};

JobClient::JobClient(const std::string& coordinator, const std::optional<MutualTls>& tls)
    : calls_(std::make_unique<Calls>(coordinator, tls)) {}

JobClient::~JobClient() {
  MutexLock lock(&calls_->mutex);
  for (const auto& [call, owned] : calls_->under_way) call->context.TryCancel();
  while (!calls_->under_way.empty()) calls_->ended.Wait(&calls_->mutex);
}

void JobClient::Query(const JobKey& key, absl::Duration timeout,
                      std::function<void(JobInfo)> done) {
  auto owned = std::make_unique<Call>();
  Call* const call = owned.get();
  call->context.set_deadline(std::chrono::system_clock::now() +
                             absl::ToChronoMilliseconds(timeout));
  call->request.set_job_id(key.id);
  call->request.set_job_key(PublicJobKey(key.secret));
  call->done = std::move(done);
  {
    MutexLock lock(&calls_->mutex);
    calls_->under_way.emplace(call, std::move(owned));
  }
  // A channel that ends on gRPC's own thread joins that thread with itself, and gRPC aborts. Only
  // this client's owner lets go of it, so a call, which holds it, is gone before `ended`.
  calls_->stub->async()->GetJob(&call->context, &call->request, &call->job,
                                [calls = calls_.get(), call](const grpc::Status& status) {
                                  call->done(InfoOf(status, call->job, calls->with_tls));
                                  MutexLock lock(&calls->mutex);
                                  calls->under_way.erase(call);
                                  calls->ended.NotifyAll();
                                });
}

}  // namespace skein::supervisor
