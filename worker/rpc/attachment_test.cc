// A rank's tie to coordinators that are played.
#include "worker/rpc/attachment.h"

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/cluster.grpc.pb.h"

namespace skein::worker {
namespace {

namespace pb = ::skein::cluster::v1;

using ::testing::ElementsAre;
using ::testing::SizeIs;

// Coordinators of one rank, one after the other, on one port.
class FakeCoordinators final : public pb::Cluster::Service {
 public:
  using Rpc = grpc::ServerReaderWriter<pb::CoordinatorMessage, pb::WorkerMessage>;

  FakeCoordinators() {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port_);
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
  }
  ~FakeCoordinators() override { server_->Shutdown(std::chrono::system_clock::now()); }

  std::string address() const { return absl::StrCat("127.0.0.1:", port_); }

  // Until the nth one has heard the rank's heart, whose next words are for it therefore.
  bool AwaitHeartbeatOf(int nth) {
    return Await([&] { return coordinator_ == nth && heard_; });
  }
  // Until the present one was sent a step.
  bool AwaitStep() {
    return Await([&] { return !steps_.empty(); });
  }
  // Ids of the requests that the present one was sent answers to.
  std::vector<uint64_t> steps() {
    MutexLock lock(&mutex_);
    return steps_;
  }
  void Ask(uint64_t request_id) {
    pb::CoordinatorMessage message;
    pb::NewRequest& request = *message.mutable_step()->add_requests();
    request.set_request_id(request_id);
    request.add_prompt(1);
    MutexLock lock(&mutex_);
    rpc_->Write(message);
  }
  void BreakConnection() {
    MutexLock lock(&mutex_);
    context_->TryCancel();
  }

  grpc::Status Attach(grpc::ServerContext* context, Rpc* rpc) override {
    pb::WorkerMessage message;
    if (!rpc->Read(&message) || !message.has_hello()) return grpc::Status::CANCELLED;
    {
      MutexLock lock(&mutex_);
      ++coordinator_;
      context_ = context;
      rpc_ = rpc;
      heard_ = false;
      steps_.clear();
    }
    while (rpc->Read(&message)) {
      MutexLock lock(&mutex_);
      if (message.has_heartbeat()) heard_ = true;
      for (const pb::SequenceOutput& sequence : message.step().sequences()) {
        steps_.push_back(sequence.request_id());
      }
    }
    return grpc::Status::OK;
  }

 private:
  template <typename Predicate>
  bool Await(const Predicate& predicate) {
    const absl::Time until = absl::Now() + absl::Seconds(20);
    while (absl::Now() < until) {
      {
        MutexLock lock(&mutex_);
        if (predicate()) return true;
      }
      absl::SleepFor(absl::Milliseconds(2));
    }
    return false;
  }

  Mutex mutex_;
  int coordinator_ ABSL_GUARDED_BY(mutex_) = 0;
  grpc::ServerContext* context_ ABSL_GUARDED_BY(mutex_) = nullptr;
  Rpc* rpc_ ABSL_GUARDED_BY(mutex_) = nullptr;
  bool heard_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<uint64_t> steps_ ABSL_GUARDED_BY(mutex_);
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

StepReport AnswerTo(RequestId id, uint64_t epoch) {
  return {.epoch = epoch, .sequences = {{.id = id, .tokens = {{.id = 3}}}}};
}

Inbox::Contents TakeSoon(Inbox& inbox) {
  return inbox.Take(std::chrono::steady_clock::now() + std::chrono::seconds(20));
}

TEST(AttachmentTest, AnAnswerToAnOldCoordinatorNeverReachesANewOne) {
  FakeCoordinators coordinators;
  Inbox inbox;
  Attachment attachment({.coordinator = coordinators.address(),
                         .job = {.id = "job", .secret = "a secret of the job"},
                         .heartbeat_interval = absl::Milliseconds(10)},
                        &inbox, [](const absl::Status&, int) {});
  ASSERT_TRUE(coordinators.AwaitHeartbeatOf(1));
  coordinators.Ask(7);
  const Inbox::Contents before = TakeSoon(inbox);
  ASSERT_THAT(before.requests, SizeIs(1));
  coordinators.BreakConnection();
  ASSERT_TRUE(coordinators.AwaitHeartbeatOf(2));

  // The engine was busy with the answer for all this time, and has not looked into its inbox.
  attachment.SendStep(AnswerTo(7, before.epoch));
  coordinators.Ask(8);
  Inbox::Contents after = TakeSoon(inbox);
  EXPECT_TRUE(after.cancel_all);
  if (after.requests.empty()) after = TakeSoon(inbox);
  ASSERT_THAT(after.requests, SizeIs(1));
  attachment.SendStep(AnswerTo(8, after.epoch));
  ASSERT_TRUE(coordinators.AwaitStep());
  EXPECT_THAT(coordinators.steps(), ElementsAre(8));
}

}  // namespace
}  // namespace skein::worker
