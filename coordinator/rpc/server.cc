#include "coordinator/rpc/server.h"

#include <grpc/support/log.h>
#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/health_check_service_interface.h>

#include <chrono>
#include <utility>

#include "base/host_port.h"
#include "base/status_macros.h"
#include "coordinator/rpc/cluster_rpc.h"
#include "coordinator/rpc/inference_rpc.h"
#include "coordinator/rpc/listen_address.h"
#include "spdlog/spdlog.h"

namespace skein::coordinator {
namespace {

constexpr char kInferenceService[] = "skein.v1.Inference";
// Prompts beyond any context are refused by us, with numbers, not by gRPC's limit of 4 MiB.
constexpr int kMaxMessageBytes = 64 << 20;
// A client or rank whose host vanished without a word is dropped within 15 s.
constexpr int kKeepaliveMs = 10'000;
constexpr int kKeepaliveTimeoutMs = 5'000;
// How often peers may ping us; gRPC's default of 5 minutes would punish a worker's keepalive.
constexpr int kMinPingIntervalMs = 1'000;

// gRPC's own messages are about what we report better.
void LogFromGrpc(gpr_log_func_args* args) {
  spdlog::debug("grpc: {} ({}:{})", args->message, args->file, args->line);
}

void Configure(grpc::ServerBuilder& builder) {
  builder.SetMaxReceiveMessageSize(kMaxMessageBytes);
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);  // a port in use is an error
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveMs);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveTimeoutMs);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS,
                             kMinPingIntervalMs);
}

}  // namespace

class Server::Impl {
 public:
  Impl(const Options& options, const Parts& parts)
      : inference_(parts.service),
        cluster_(parts.cluster, [version = options.version, parts, started = parts.clock->Now()] {
          return Summary(version, parts, started);
        }) {}

  // The port that was taken; 0 when the address cannot be listened on.
  int Start(const std::string& address) {
    grpc::EnableDefaultHealthCheckService(true);
    grpc::reflection::InitProtoReflectionServerBuilderPlugin();
    grpc::ServerBuilder builder;
    Configure(builder);
    int port = 0;
    builder.AddListeningPort(address, grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(&inference_);
    builder.RegisterService(&cluster_);
    server_ = builder.BuildAndStart();
    return server_ == nullptr ? 0 : port;
  }

  void SetServing(bool serving) {
    grpc::HealthCheckServiceInterface* health = server_->GetHealthCheckService();
    health->SetServingStatus(serving);
    health->SetServingStatus(kInferenceService, serving);
  }

  void Shutdown(absl::Duration grace) {
    if (server_ == nullptr) return;
    server_->Shutdown(std::chrono::system_clock::now() + absl::ToChronoMilliseconds(grace));
    server_->Wait();
  }

 private:
  static cluster::v1::ClusterStatus Summary(const std::string& version, const Parts& parts,
                                            absl::Time started) {
    const Dispatcher::Counts counts = parts.dispatcher->counts();
    cluster::v1::ClusterStatus status;
    status.set_version(version);
    status.set_model_name(parts.service->model().name);
    status.set_serving(parts.dispatcher->serving());
    status.set_draining(parts.dispatcher->draining());
    status.set_queued_requests(static_cast<int32_t>(counts.queued));
    status.set_running_requests(static_cast<int32_t>(counts.running));
    status.set_migrations(counts.migrations);
    status.set_uptime_seconds(absl::ToDoubleSeconds(parts.clock->Now() - started));
    return status;
  }

  InferenceRpc inference_;
  ClusterRpc cluster_;
  std::unique_ptr<grpc::Server> server_;
};

Server::Server() = default;

Server::~Server() { Shutdown(absl::ZeroDuration()); }

absl::Status Server::Start(const Options& options, const Parts& parts) {
  SKEIN_ASSIGN_OR_RETURN(HostPort address, ParseHostPort(options.listen));
  gpr_set_log_function(LogFromGrpc);
  impl_ = std::make_unique<Impl>(options, parts);
  const int port = impl_->Start(address.ToString());
  if (port == 0) {
    impl_ = nullptr;
    SKEIN_RETURN_IF_ERROR(CheckListenAddress(address));
    return absl::UnavailableError("--listen: gRPC cannot listen on " + address.ToString());
  }
  address.port = port;
  address_ = address.ToString();
  MutexLock lock(&mutex_);
  started_ = true;
  impl_->SetServing(serving_);
  return absl::OkStatus();
}

void Server::SetServing(bool serving) {
  MutexLock lock(&mutex_);
  serving_ = serving;
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
