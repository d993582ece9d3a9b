#include "coordinator/rpc/server.h"

#include <grpc/support/log.h>
#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/health_check_service_interface.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "base/host_port.h"
#include "base/status_macros.h"
#include "coordinator/http2_guard/http2_guard.h"
#include "coordinator/rpc/admin_rpc.h"
#include "coordinator/rpc/cluster_convert.h"
#include "coordinator/rpc/cluster_rpc.h"
#include "coordinator/rpc/inference_rpc.h"
#include "coordinator/rpc/listener.h"
#include "coordinator/rpc/refusals.h"
#include "coordinator/service/model_registry.h"
#include "proto/message_json.h"
#include "spdlog/spdlog.h"

namespace skein::coordinator {
namespace {

constexpr char kInferenceService[] = "skein.v1.Inference";
// Prompts beyond any context are refused by us, with numbers, not by gRPC's limit of 4 MiB.
constexpr int kMaxMessageBytes = 64 << 20;
// A client or rank whose host vanished without a word is dropped within 15 s.
constexpr int kKeepaliveMs = 10'000;
constexpr int kKeepaliveTimeoutMs = 5'000;
// Peers may ping us so often; gRPC's default of 5 minutes would punish a worker's keepalive.
constexpr int kMinPingIntervalMs = 1'000;
// Who connects and says nothing holds a descriptor for so long; gRPC's default is 2 minutes.
constexpr int kHandshakeMs = 10'000;

// A call of the last connections ends within it, too.
constexpr absl::Duration kLeastGrace = absl::Milliseconds(200);

// gRPC's own messages are about what we report better.
void LogFromGrpc(gpr_log_func_args* args) {
  spdlog::debug("grpc: {} ({}:{})", args->message, args->file, args->line);
}

cluster::v1::Quantiles ToProto(const RecentDurations::Quantiles& quantiles) {
  cluster::v1::Quantiles out;
  out.set_count(quantiles.count);
  out.set_p50_seconds(absl::ToDoubleSeconds(quantiles.p50));
  out.set_p99_seconds(absl::ToDoubleSeconds(quantiles.p99));
  return out;
}

cluster::v1::ClusterStatus StatusOf(const std::string& version, const Server::Parts& parts,
                                    absl::Time started) {
  cluster::v1::ClusterStatus status;
  Dispatcher::Counts sum;
  bool draining = false;
  std::vector<std::string> names;
  const ModelRegistry& models = parts.service->models();
  for (const HostedModel& hosted : models.All()) {
    cluster::v1::ModelStatus& of = *status.add_models();
    const Dispatcher::Counts counts = hosted.dispatcher->counts();
    of.set_name(hosted.model->name);
    of.set_state(hosted.state());
    of.set_queued_requests(static_cast<int32_t>(counts.queued));
    of.set_running_requests(static_cast<int32_t>(counts.running));
    of.set_migrations(counts.migrations);
    sum += counts;
    draining = hosted.dispatcher->draining() && (draining || names.empty());
    names.push_back(hosted.model->name);
  }
  for (const std::string& name : models.Loading()) {
    cluster::v1::ModelStatus& of = *status.add_models();
    of.set_name(name);
    of.set_state(ModelRegistry::kLoading);
  }
  status.set_version(version);
  status.set_model_name(absl::StrJoin(names, ", "));
  status.set_serving(models.serving());
  status.set_draining(draining);
  status.set_queued_requests(static_cast<int32_t>(sum.queued));
  status.set_running_requests(static_cast<int32_t>(sum.running));
  status.set_migrations(sum.migrations);
  status.set_uptime_seconds(absl::ToDoubleSeconds(parts.clock->Now() - started));
  const LatencyWatch::Latencies latencies = parts.latencies->Read();
  cluster::v1::RecentLatencies& to = *status.mutable_latencies();
  to.set_window_seconds(absl::ToDoubleSeconds(latencies.window));
  *to.mutable_first_token() = ToProto(latencies.first_token);
  *to.mutable_inter_token() = ToProto(latencies.inter_token);
  for (const JobStatus& job : parts.cluster->Status()) *status.add_jobs() = ToProto(job);
  return status;
}

int DefaultDescriptors() {
  rlimit limit = {};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return MaxDescriptors(1024);
  return MaxDescriptors(static_cast<int64_t>(std::min<rlim_t>(limit.rlim_cur, 1 << 20)));
}

void Configure(grpc::ServerBuilder& builder) {
  builder.SetMaxReceiveMessageSize(kMaxMessageBytes);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveMs);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveTimeoutMs);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS,
                             kMinPingIntervalMs);
  builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, kHandshakeMs);
  // What it tells clients; the guard sees to it.
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS,
                             static_cast<int>(ClientLimits().open_streams));
}

}  // namespace

class Server::Impl {
 public:
  Impl(const Options& options, const Parts& parts)
      : options_(options),
        parts_(parts),
        inference_(parts.service),
        admin_(parts.admin),
        cluster_(options.cluster, parts.cluster, [this] { return Status(); }) {}

  absl::Status Start(const HostPort& address, int max_descriptors) {
    SKEIN_ASSIGN_OR_RETURN(listener_, Listener::Open(address));
    grpc::EnableDefaultHealthCheckService(true);
    grpc::reflection::InitProtoReflectionServerBuilderPlugin();
    grpc::ServerBuilder builder;
    Configure(builder);
    acceptor_ = builder.experimental().AddExternalConnectionAcceptor(
        grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD,
        grpc::InsecureServerCredentials());
    builder.RegisterService(&inference_);
    builder.RegisterService(&cluster_);
    builder.RegisterService(&admin_);
    server_ = builder.BuildAndStart();
    if (server_ == nullptr) return absl::InternalError("gRPC cannot start a server");
    SKEIN_ASSIGN_OR_RETURN(
        guard_, Http2Guard::Start({.max_descriptors = max_descriptors,
                                   .tls = options_.tls,
                                   .on_connection = [this](int fd) { HandToGrpc(fd); },
                                   .on_refusal =
                                       [this](const std::string& reason, const std::string& line) {
                                         refusals_.Say(reason, line, absl::Now());
                                       }}));
    listener_->Start(max_descriptors, [this](int fd) { guard_->Add(fd); });
    return absl::OkStatus();
  }

  absl::Status UseCertificates(const MutualTls& tls) { return guard_->UseCertificates(tls); }

  // Has the port that was taken.
  const HostPort& address() const { return listener_->address(); }

  cluster::v1::ClusterStatus Status() const { return StatusOf(options_.version, parts_, started_); }

  void SetServing(bool serving) {
    // Services are named: the call without a name would also set those that somebody watches in
    // vain.
    grpc::HealthCheckServiceInterface* health = server_->GetHealthCheckService();
    health->SetServingStatus("", serving);
    health->SetServingStatus(kInferenceService, serving);
  }

  void Shutdown(absl::Duration grace) {
    if (server_ == nullptr) return;
    const absl::Time until = absl::Now() + grace;
    listener_->Stop();
    if (guard_ != nullptr) guard_->StopTaking();
    server_->Shutdown(absl::ToChronoTime(until));
    server_->Wait();
    if (guard_ != nullptr) guard_->Stop(std::max(until - absl::Now(), kLeastGrace));
  }

 private:
  void HandToGrpc(int fd) {
    grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters connection;
    connection.fd = fd;
    acceptor_->HandleNewConnection(&connection);
  }

  const Options options_;
  const Parts parts_;
  const absl::Time started_ = parts_.clock->Now();
  InferenceRpc inference_;
  AdminRpc admin_;
  ClusterRpc cluster_;
  Refusals refusals_;
  std::unique_ptr<Listener> listener_;
  std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> acceptor_;
  std::unique_ptr<Http2Guard> guard_;
  std::unique_ptr<grpc::Server> server_;
};

Server::Server() = default;

Server::~Server() { Shutdown(absl::ZeroDuration()); }

absl::Status Server::Start(const Options& options, const Parts& parts) {
  SKEIN_ASSIGN_OR_RETURN(const HostPort address, ParseHostPort(options.listen));
  gpr_set_log_function(LogFromGrpc);
  impl_ = std::make_unique<Impl>(options, parts);
  if (const absl::Status status = impl_->Start(
          address, options.max_descriptors > 0 ? options.max_descriptors : DefaultDescriptors());
      !status.ok()) {
    impl_ = nullptr;
    return status;
  }
  address_ = impl_->address().ToString();
  MutexLock lock(&mutex_);
  started_ = true;
  impl_->SetServing(serving_);
  return absl::OkStatus();
}

std::string Server::StatusJson() const { return ToJson(impl_->Status()); }

absl::Status Server::UseCertificates(const MutualTls& tls) { return impl_->UseCertificates(tls); }

void Server::SetServing(bool serving) {
  MutexLock lock(&mutex_);
  // Watchers are told every state that is set, equal ones, too.
  if (std::exchange(serving_, serving) == serving) return;
  if (started_) impl_->SetServing(serving);
}

void Server::Shutdown(absl::Duration grace) {
  {
    MutexLock lock(&mutex_);
    if (!std::exchange(started_, false)) return;
  }
  impl_->Shutdown(grace);
}

}  // namespace skein::coordinator
