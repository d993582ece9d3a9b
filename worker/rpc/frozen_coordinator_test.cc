// A coordinator of version 1 of the protocol, as its bytes were frozen, has today's worker serve;
// and what that one says is read by the schema of then.
#include <google/protobuf/message.h>
#include <google/protobuf/util/message_differencer.h>
#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/grpcpp.h>

#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/mutex.h"
#include "base/range.h"
#include "base/test_util.h"
#include "base/version.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/cluster.pb.h"
#include "proto/frozen/frozen_protocol.h"
#include "worker/rpc/attachment.h"

namespace skein::worker {
namespace {

namespace pb = ::google::protobuf;

using ::testing::ElementsAre;
using ::testing::SizeIs;

// Plays one coordinator, of bytes.
class FrozenCoordinator final : public grpc::CallbackGenericService {
 public:
  FrozenCoordinator() {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port_);
    builder.RegisterCallbackGenericService(this);
    server_ = builder.BuildAndStart();
  }
  ~FrozenCoordinator() override { server_->Shutdown(std::chrono::system_clock::now()); }

  std::string address() const { return absl::StrCat("127.0.0.1:", port_); }

  // Says what is frozen under this name.
  void Say(const std::string& frozen) {
    MutexLock lock(&mutex_);
    to_say_.push_back(protocol_.Bytes(frozen));
    Advance();
  }
  // The first word of the kind, by the schema of then; null where none comes.
  std::unique_ptr<pb::Message> Hear(const std::string& kind) {
    const absl::Time until = absl::Now() + absl::Seconds(20);
    while (absl::Now() < until) {
      {
        MutexLock lock(&mutex_);
        for (const std::string& bytes : heard_) {
          std::unique_ptr<pb::Message> message =
              protocol_.Parse("skein.cluster.v1.WorkerMessage", bytes);
          const auto* const field = message->GetDescriptor()->FindFieldByName(kind);
          if (message->GetReflection()->HasField(*message, field)) return message;
        }
      }
      absl::SleepFor(absl::Milliseconds(2));
    }
    ADD_FAILURE() << "no " << kind;
    return nullptr;
  }
  std::vector<std::string> heard() {
    MutexLock lock(&mutex_);
    return heard_;
  }

  grpc::ServerGenericBidiReactor* CreateReactor(
      grpc::GenericCallbackServerContext* context) override {
    EXPECT_EQ(context->method(), "/skein.cluster.v1.Cluster/Attach");
    auto* const reactor = new Reactor(this);
    MutexLock lock(&mutex_);
    reactor_ = reactor;
    return reactor;
  }

 private:
  class Reactor final : public grpc::ServerGenericBidiReactor {
   public:
    explicit Reactor(FrozenCoordinator* played) : played_(played) { StartRead(&incoming_); }
    void OnReadDone(bool ok) override {
      if (!ok) {
        {
          MutexLock lock(&played_->mutex_);
          played_->reactor_ = nullptr;
        }
        return Finish(grpc::Status::OK);
      }
      grpc::Slice bytes;
      EXPECT_TRUE(incoming_.DumpToSingleSlice(&bytes).ok());
      {
        MutexLock lock(&played_->mutex_);
        played_->heard_.emplace_back(reinterpret_cast<const char*>(bytes.begin()), bytes.size());
      }
      StartRead(&incoming_);
    }
    void OnWriteDone(bool) override {
      MutexLock lock(&played_->mutex_);
      played_->writing_ = false;
      if (played_->reactor_ == this) played_->Advance();
    }
    void OnDone() override { delete this; }
    void Write(const std::string& bytes) {
      const grpc::Slice slice(bytes);
      outgoing_ = grpc::ByteBuffer(&slice, 1);
      StartWrite(&outgoing_);
    }

   private:
    FrozenCoordinator* const played_;
    grpc::ByteBuffer incoming_, outgoing_;
  };

  void Advance() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (writing_ || to_say_.empty() || reactor_ == nullptr) return;
    writing_ = true;
    reactor_->Write(to_say_.front());
    to_say_.pop_front();
  }

  const FrozenProtocol protocol_{1};
  Mutex mutex_;
  Reactor* reactor_ ABSL_GUARDED_BY(mutex_) = nullptr;
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  std::deque<std::string> to_say_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::string> heard_ ABSL_GUARDED_BY(mutex_);
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

std::string Text(const pb::Message& message, const std::string& kind, const std::string& field) {
  const pb::Message& part =
      message.GetReflection()->GetMessage(message, message.GetDescriptor()->FindFieldByName(kind));
  return part.GetReflection()->GetString(part, part.GetDescriptor()->FindFieldByName(field));
}

const topology::Device kDevice{.name = "a CPU"};

AttachmentOptions Options(const FrozenCoordinator& coordinator) {
  return {.coordinator = coordinator.address(),
          .job = {.id = "job", .secret = "a secret of the job"},
          .node = {.host = "node7", .cores = 4, .memory_bytes = 1 << 30},
          .device = kDevice,
          .heartbeat_interval = absl::Milliseconds(10)};
}

TEST(FrozenCoordinatorTest, TodaysWorkerServesIt) {
  FrozenCoordinator coordinator;
  Inbox inbox;
  Mutex mutex;
  std::vector<int> ends;
  Attachment attachment(Options(coordinator), &inbox, [&](const absl::Status&, int code) {
    MutexLock lock(&mutex);
    ends.push_back(code);
  });
  const std::unique_ptr<pb::Message> hello = coordinator.Hear("hello");
  ASSERT_NE(hello, nullptr);
  EXPECT_EQ(Text(*hello, "hello", "job_id"), "job");
  EXPECT_EQ(Text(*hello, "hello", "version"), std::string(kVersion));
  coordinator.Say("welcome");
  ASSERT_NE(coordinator.Hear("proof"), nullptr);
  coordinator.Say("plan");
  SKEIN_ASSERT_OK_AND_ASSIGN(const plan::Plan plan, attachment.WaitForPlan());
  EXPECT_EQ(plan.model_name, "bard");
  EXPECT_EQ(plan.ranks.at(0).layers, (Range{0, 8}));
  EXPECT_EQ(plan.context_length, 128);
  attachment.SendReady({.slice_key = "layers 0-7", .slice_digest = "d"});
  EXPECT_EQ(Text(*coordinator.Hear("ready"), "ready", "slice_key"), "layers 0-7");
  ASSERT_NE(coordinator.Hear("heartbeat"), nullptr);
  coordinator.Say("heartbeat_answer");
  coordinator.Say("updates");
  const Inbox::Contents asked =
      inbox.Take(std::chrono::steady_clock::now() + std::chrono::seconds(20));
  ASSERT_THAT(asked.requests, SizeIs(1));
  const serving::Request& request = asked.requests[0];
  EXPECT_EQ(request.id, serving::RequestId(7));
  EXPECT_THAT(request.prompt, ElementsAre(104, 105));
  EXPECT_EQ(request.max_tokens, 16);
  EXPECT_THAT(request.eos_token_ids, ElementsAre(256));
  EXPECT_EQ(request.sampling.temperature, 0.5f);
  EXPECT_EQ(request.sampling.top_k, 40);
  EXPECT_EQ(request.sampling.seed, 9u);
  ASSERT_THAT(request.answers, SizeIs(2));
  EXPECT_THAT(request.answers[1].output, ElementsAre(3));
  EXPECT_EQ(request.priority, -3);
  EXPECT_EQ(request.waited, absl::Milliseconds(500));
  StepReport report;
  report.epoch = asked.epoch;
  report.answers.push_back({.request_id = request.id, .tokens = {{.id = 3}}});
  attachment.SendStep(report);
  ASSERT_NE(coordinator.Hear("step"), nullptr);
  coordinator.Say("shutdown");
  const absl::Time until = absl::Now() + absl::Seconds(20);
  const auto ended = [&] {
    MutexLock lock(&mutex);
    return ends;
  };
  while (ended().empty() && absl::Now() < until) absl::SleepFor(absl::Milliseconds(5));
  EXPECT_THAT(ended(), ElementsAre(0));

  // What that schema reads is what was meant. There may be more, which it passes over.
  for (const std::string& bytes : coordinator.heard()) {
    cluster::v1::WorkerMessage today;
    ASSERT_TRUE(today.ParseFromString(bytes));
    const FrozenProtocol protocol(1);
    const std::unique_ptr<pb::Message> then =
        protocol.Parse("skein.cluster.v1.WorkerMessage", bytes);
    then->DiscardUnknownFields();
    EXPECT_NE(then->ByteSizeLong(), 0u) << today.DebugString();
    cluster::v1::WorkerMessage read;
    ASSERT_TRUE(read.ParseFromString(then->SerializeAsString()));
    pb::util::MessageDifferencer differences;
    differences.set_scope(pb::util::MessageDifferencer::PARTIAL);
    EXPECT_TRUE(differences.Compare(read, today)) << read.DebugString() << today.DebugString();
  }
}

// A coordinator that takes its time would take a heartbeat for the proof, and refuse the rank.
TEST(FrozenCoordinatorTest, ARankSaysWhoItIsBeforeAllElse) {
  FrozenCoordinator coordinator;
  Inbox inbox;
  const Attachment attachment(Options(coordinator), &inbox, [](const absl::Status&, int) {});
  ASSERT_NE(coordinator.Hear("hello"), nullptr);
  absl::SleepFor(absl::Milliseconds(200));  // many heartbeats
  EXPECT_THAT(coordinator.heard(), SizeIs(1));
  coordinator.Say("welcome");
  ASSERT_NE(coordinator.Hear("heartbeat"), nullptr);
  cluster::v1::WorkerMessage second;
  ASSERT_TRUE(second.ParseFromString(coordinator.heard().at(1)));
  EXPECT_TRUE(second.has_proof());
}

}  // namespace
}  // namespace skein::worker
