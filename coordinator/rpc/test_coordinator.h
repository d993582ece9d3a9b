// Starts a whole coordinator in the test's process, on a free port, and a client of it.
#pragma once

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/functional/function_ref.h"
#include "base/mutex.h"
#include "coordinator/daemon.h"
#include "coordinator/rpc/fake_job.h"
#include "coordinator/service/fake_tokenizer.h"
#include "gtest/gtest.h"
#include "proto/cluster.grpc.pb.h"
#include "proto/inference.grpc.pb.h"

namespace skein::coordinator {

// One rank is a replica. Each takes one request at a time (and one that waits there); 2 fit in the
// queue.
Daemon::Options TestOptions();

struct Answer {
  grpc::Status status;
  std::vector<v1::GenerateEvent> events;

  std::string text() const;
  const v1::GenerateEvent& last() const { return events.back(); }
};

class TestCoordinator {
 public:
  // `tls`: the client's.
  explicit TestCoordinator(Daemon::Options options = TestOptions(),
                           ServedModel model = MakeFakeModel(),
                           const std::optional<MutualTls>& tls = std::nullopt);
  ~TestCoordinator();

  // Besides the first one.
  void AddModel(ServedModel model);
  const std::string& address() const { return daemon_.address(); }
  const std::string& http_address() const { return daemon_.http_address(); }
  const std::string& metrics_address() const { return daemon_.metrics_address(); }
  const std::shared_ptr<grpc::Channel>& channel() const { return channel_; }
  v1::Inference::Stub& inference() { return *inference_; }

  // Returns the stub of a client whose flow control lets no more than 64 KiB through unread.
  std::unique_ptr<v1::Inference::Stub> StubWithSmallWindow() const;

  void StartDrain() { drain_ = true; }
  bool WaitUntilDrained();

  cluster::v1::ClusterStatus Status();
  bool WaitUntilServing(bool serving = true);

  // Returns false where it did not hold within 20 s.
  static bool WaitFor(absl::FunctionRef<bool()> predicate);

  Answer Ask(const v1::GenerateRequest& request);
  Answer Ask(const v1::GenerateRequest& request, grpc::ClientContext& context);
  static Answer ReadAll(grpc::ClientReader<v1::GenerateEvent>& reader);

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

v1::GenerateRequest PromptRequest(const std::string& prompt);

}  // namespace skein::coordinator
