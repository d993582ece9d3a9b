#include "coordinator/rpc/test_coordinator.h"

#include <utility>

#include "absl/time/clock.h"
#include "base/clock.h"
#include "base/test_util.h"
#include "proto/credentials/credentials.h"

namespace skein::coordinator {

Daemon::Options TestOptions() {
  Daemon::Options options;
  options.server = {.listen = "127.0.0.1:0", .version = "test"};
  options.http = HttpServerOptions{.listen = "127.0.0.1:0"};
  options.cluster.version = "test";
  options.model.limits.constraints.layout = {.tp_size = 1, .pp_size = 1};
  options.model.limits.constraints.max_num_seqs = 1;
  options.model.limits.max_queue = 2;
  return options;
}

std::string Answer::text() const {
  std::string text;
  for (const v1::GenerateEvent& event : events) text += event.tokens().text();
  return text;
}

TestCoordinator::TestCoordinator(Daemon::Options options, ServedModel model,
                                 const std::optional<MutualTls>& tls)
    : limits_(options.model.limits), daemon_(std::move(options), &RealClock::Get()) {
  SKEIN_EXPECT_OK(daemon_.AddModel(std::move(model), limits_));
  SKEIN_EXPECT_OK(daemon_.Start());
  channel_ = grpc::CreateChannel(address(), ChannelCredentialsOf(tls));
  inference_ = v1::Inference::NewStub(channel_);
  cluster_ = cluster::v1::Cluster::NewStub(channel_);
  ticker_ = std::thread([this] {
    while (!stop_) {
      absl::SleepFor(absl::Milliseconds(20));
      MutexLock lock(&mutex_);
      if (drain_) daemon_.StartDrain();
      daemon_.Tick();
    }
  });
}

TestCoordinator::~TestCoordinator() {
  stop_ = true;
  ticker_.join();
}

void TestCoordinator::AddModel(ServedModel model) {
  SKEIN_EXPECT_OK(daemon_.AddModel(std::move(model), limits_));
}

std::unique_ptr<v1::Inference::Stub> TestCoordinator::StubWithSmallWindow() const {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);  // or the window would grow
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  return v1::Inference::NewStub(
      grpc::CreateCustomChannel(address(), grpc::InsecureChannelCredentials(), arguments));
}

bool TestCoordinator::WaitUntilDrained() {
  return WaitFor([this] {
    MutexLock lock(&mutex_);
    return daemon_.drained();
  });
}

cluster::v1::ClusterStatus TestCoordinator::Status() {
  grpc::ClientContext context;
  cluster::v1::ClusterStatus status;
  EXPECT_TRUE(cluster_->GetStatus(&context, {}, &status).ok());
  return status;
}

bool TestCoordinator::WaitUntilServing(bool serving) {
  return WaitFor([&] { return Status().serving() == serving; });
}

bool TestCoordinator::WaitFor(absl::FunctionRef<bool()> predicate) {
  const absl::Time until = absl::Now() + absl::Seconds(20);
  while (!predicate()) {
    if (absl::Now() > until) return false;
    absl::SleepFor(absl::Milliseconds(10));
  }
  return true;
}

Answer TestCoordinator::Ask(const v1::GenerateRequest& request) {
  grpc::ClientContext context;
  return Ask(request, context);
}

Answer TestCoordinator::Ask(const v1::GenerateRequest& request, grpc::ClientContext& context) {
  return ReadAll(*inference_->Generate(&context, request));
}

Answer TestCoordinator::ReadAll(grpc::ClientReader<v1::GenerateEvent>& reader) {
  Answer answer;
  v1::GenerateEvent event;
  while (reader.Read(&event)) answer.events.push_back(event);
  answer.status = reader.Finish();
  return answer;
}

v1::GenerateRequest PromptRequest(const std::string& prompt) {
  v1::GenerateRequest request;
  request.set_prompt(prompt);
  return request;
}

}  // namespace skein::coordinator
