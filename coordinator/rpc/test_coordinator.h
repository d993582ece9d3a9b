// Starts a whole coordinator in the test's process, on a free port, and a client of it.
#pragma once

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/time/clock.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "base/test_util.h"
#include "coordinator/daemon.h"
#include "coordinator/rpc/fake_job.h"
#include "coordinator/service/fake_tokenizer.h"
#include "gtest/gtest.h"
#include "proto/cluster.grpc.pb.h"
#include "proto/credentials/credentials.h"
#include "proto/inference.grpc.pb.h"

namespace skein::coordinator {

// One rank is a replica. Each takes one request at a time (and one that waits there); 2 fit in the
// queue.
inline Daemon::Options TestOptions() {
  Daemon::Options options;
  options.server = {.listen = "127.0.0.1:0", .version = "test"};
  options.http = HttpServerOptions{.listen = "127.0.0.1:0"};
  options.cluster.version = "test";
  options.model.limits.constraints.layout = {.tp_size = 1, .pp_size = 1};
  options.model.limits.constraints.max_num_seqs = 1;
  options.model.limits.max_queue = 2;
  return options;
}

struct Answer {
  grpc::Status status;
  std::vector<v1::GenerateEvent> events;

  std::string text() const {
    std::string text;
    for (const v1::GenerateEvent& event : events) text += event.tokens().text();
    return text;
  }
  const v1::GenerateEvent& last() const { return events.back(); }
};

class TestCoordinator {
 public:
  // `tls`: the client's.
  explicit TestCoordinator(Daemon::Options options = TestOptions(),
                           ServedModel model = MakeFakeModel(),
                           const std::optional<MutualTls>& tls = std::nullopt)
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

  ~TestCoordinator() {
    stop_ = true;
    ticker_.join();
  }

  // Besides the first one.
  void AddModel(ServedModel model) { SKEIN_EXPECT_OK(daemon_.AddModel(std::move(model), limits_)); }
  const std::string& address() const { return daemon_.address(); }
  const std::string& http_address() const { return daemon_.http_address(); }
  const std::string& metrics_address() const { return daemon_.metrics_address(); }
  const std::shared_ptr<grpc::Channel>& channel() const { return channel_; }
  v1::Inference::Stub& inference() { return *inference_; }

  // Returns the stub of a client whose flow control lets no more than 64 KiB through unread.
  std::unique_ptr<v1::Inference::Stub> StubWithSmallWindow() const {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);  // or the window would grow
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    return v1::Inference::NewStub(
        grpc::CreateCustomChannel(address(), grpc::InsecureChannelCredentials(), arguments));
  }

  void StartDrain() { drain_ = true; }
  bool WaitUntilDrained() {
    return WaitFor([this] {
      MutexLock lock(&mutex_);
      return daemon_.drained();
    });
  }

  cluster::v1::ClusterStatus Status() {
    grpc::ClientContext context;
    cluster::v1::ClusterStatus status;
    EXPECT_TRUE(cluster_->GetStatus(&context, {}, &status).ok());
    return status;
  }
  bool WaitUntilServing(bool serving = true) {
    return WaitFor([&] { return Status().serving() == serving; });
  }

  template <typename Predicate>
  static bool WaitFor(const Predicate& predicate) {
    const absl::Time until = absl::Now() + absl::Seconds(20);
    while (!predicate()) {
      if (absl::Now() > until) return false;
      absl::SleepFor(absl::Milliseconds(10));
    }
    return true;
  }

  Answer Ask(const v1::GenerateRequest& request) {
    grpc::ClientContext context;
    return Ask(request, context);
  }
  Answer Ask(const v1::GenerateRequest& request, grpc::ClientContext& context) {
    return ReadAll(*inference_->Generate(&context, request));
  }
  static Answer ReadAll(grpc::ClientReader<v1::GenerateEvent>& reader) {
    Answer answer;
    v1::GenerateEvent event;
    while (reader.Read(&event)) answer.events.push_back(event);
    answer.status = reader.Finish();
    return answer;
  }

 private:
  const ModelLimits limits_;
  Daemon daemon_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::Inference::Stub> inference_;
  std::unique_ptr<cluster::v1::Cluster::Stub> cluster_;
  Mutex mutex_;
  std::atomic<bool> stop_ = false;
  std::atomic<bool> drain_ = false;
  std::thread ticker_;
};

inline v1::GenerateRequest PromptRequest(const std::string& prompt) {
  v1::GenerateRequest request;
  request.set_prompt(prompt);
  return request;
}

}  // namespace skein::coordinator
