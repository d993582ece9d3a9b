// A worker of version 1 of the protocol, as its bytes were frozen, serves under today's
// coordinator.
#include <google/protobuf/message.h>
#include <grpcpp/generic/generic_stub.h>

#include <chrono>
#include <future>
#include <memory>
#include <string>

#include "base/test_util.h"
#include "base/tls/job_key.h"
#include "coordinator/rpc/test_coordinator.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/frozen/frozen_protocol.h"

namespace skein::coordinator {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

const FieldDescriptor* Field(const Message& message, const std::string& name) {
  const FieldDescriptor* const field = message.GetDescriptor()->FindFieldByName(name);
  EXPECT_NE(field, nullptr) << message.GetTypeName() << "." << name;
  return field;
}
bool Has(const Message& message, const std::string& name) {
  return message.GetReflection()->HasField(message, Field(message, name));
}
const Message& Part(const Message& message, const std::string& name) {
  return message.GetReflection()->GetMessage(message, Field(message, name));
}
const Message& First(const Message& message, const std::string& name) {
  return message.GetReflection()->GetRepeatedMessage(message, Field(message, name), 0);
}

// Knows bytes and the schema of then alone.
class FrozenWorker {
 public:
  explicit FrozenWorker(const TestCoordinator& coordinator) : stub_(coordinator.channel()) {
    context_.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(30));
    call_ = stub_.PrepareCall(&context_, "/skein.cluster.v1.Cluster/Attach", &queue_);
    call_->StartCall(nullptr);
    EXPECT_TRUE(Next());
  }
  ~FrozenWorker() {
    context_.TryCancel();
    queue_.Shutdown();
    void* tag = nullptr;
    for (bool ok = false; queue_.Next(&tag, &ok);) {
    }
  }

  void SayBytes(const std::string& bytes) {
    const grpc::Slice slice(bytes);
    call_->Write(grpc::ByteBuffer(&slice, 1), nullptr);
    EXPECT_TRUE(Next());
  }
  void Say(const std::string& frozen) { SayBytes(protocol_.Bytes(frozen)); }
  // The next word; what cannot be read fails.
  std::unique_ptr<Message> Hear() {
    grpc::ByteBuffer buffer;
    call_->Read(&buffer, nullptr);
    EXPECT_TRUE(Next()) << "the stream is over";
    grpc::Slice bytes;
    EXPECT_TRUE(buffer.DumpToSingleSlice(&bytes).ok());
    return protocol_.Parse("skein.cluster.v1.CoordinatorMessage",
                           std::string(reinterpret_cast<const char*>(bytes.begin()), bytes.size()));
  }
  const FrozenProtocol& protocol() const { return protocol_; }

 private:
  bool Next() {
    void* tag = nullptr;
    bool ok = false;
    return queue_.Next(&tag, &ok) && ok;
  }

  const FrozenProtocol protocol_{1};
  grpc::GenericStub stub_;
  grpc::ClientContext context_;
  grpc::CompletionQueue queue_;
  std::unique_ptr<grpc::GenericClientAsyncReaderWriter> call_;
};

// Of one request that is frozen with the number of a coordinator's first one.
TEST(FrozenWorkerTest, AttachesServesAndEnds) {
  TestCoordinator coordinator;
  FrozenWorker worker(coordinator);
  worker.Say("hello");
  const std::unique_ptr<Message> answer = worker.Hear();
  ASSERT_TRUE(Has(*answer, "welcome")) << answer->DebugString();
  const Message& welcome = Part(*answer, "welcome");
  EXPECT_EQ(welcome.GetReflection()->GetInt32(welcome, Field(welcome, "protocol")), 1);
  const std::string nonce = welcome.GetReflection()->GetString(welcome, Field(welcome, "nonce"));
  // What it signs is held by job_key_test, as made by other programs.
  const std::unique_ptr<Message> proof = worker.protocol().New("skein.cluster.v1.WorkerMessage");
  Message& signature = *proof->GetReflection()->MutableMessage(proof.get(), Field(*proof, "proof"));
  signature.GetReflection()->SetString(
      &signature, Field(signature, "signature"),
      ProveClaim("a secret of the job",
                 {.nonce = nonce, .job_id = "frozen", .rank = 0, .job_size = 1}));
  worker.SayBytes(proof->SerializeAsString());

  const std::unique_ptr<Message> planned = worker.Hear();
  ASSERT_TRUE(Has(*planned, "plan")) << planned->DebugString();
  const Message& part = First(Part(*planned, "plan"), "ranks");
  const auto layer = [&](const char* name) {
    return part.GetReflection()->GetInt64(part, Field(part, name));
  };
  EXPECT_EQ(layer("layers_begin"), 0);
  EXPECT_EQ(layer("layers_end"), 4);
  worker.Say("ready");
  ASSERT_TRUE(coordinator.WaitUntilServing());
  worker.Say("heartbeat");
  EXPECT_TRUE(Has(*worker.Hear(), "heartbeat"));
  const cluster::v1::ClusterStatus status = coordinator.Status();
  ASSERT_EQ(status.jobs_size(), 1);
  EXPECT_EQ(status.jobs(0).job_id(), "frozen");
  EXPECT_EQ(status.jobs(0).version(), "0.1.0");
  EXPECT_EQ(status.jobs(0).protocol(), 1);
  ASSERT_EQ(status.jobs(0).ranks_size(), 1);
  EXPECT_EQ(status.jobs(0).ranks(0).host(), "node7");
  EXPECT_EQ(status.jobs(0).ranks(0).bytes_read(), 12345);
  EXPECT_EQ(status.jobs(0).experts().expert(), 7);

  auto answered =
      std::async(std::launch::async, [&] { return coordinator.Ask(PromptRequest("x")); });
  const std::unique_ptr<Message> asked = worker.Hear();
  ASSERT_TRUE(Has(*asked, "updates")) << asked->DebugString();
  const Message& request = First(Part(*asked, "updates"), "requests");
  ASSERT_EQ(request.GetReflection()->GetUInt64(request, Field(request, "request_id")), 1u);
  EXPECT_EQ(request.GetReflection()->GetRepeatedUInt32(request, Field(request, "prompt"), 0), 'x');
  worker.Say("step");
  worker.Say("last_step");
  const Answer got = answered.get();
  EXPECT_TRUE(got.status.ok()) << got.status.error_message();
  EXPECT_EQ(got.text(), "hi");

  worker.Say("failure");
  ASSERT_TRUE(
      TestCoordinator::WaitFor([&] { return coordinator.Status().jobs(0).state() == "lost"; }));
  EXPECT_THAT(coordinator.Status().jobs(0).detail(),
              ::testing::HasSubstr("rank 0 on node7: its GPU has failed"));
}

TEST(FrozenWorkerTest, IsToldToEnd) {
  TestCoordinator coordinator;
  FrozenWorker worker(coordinator);
  worker.Say("hello");
  const std::unique_ptr<Message> answer = worker.Hear();
  const Message& welcome = Part(*answer, "welcome");
  const std::string nonce = welcome.GetReflection()->GetString(welcome, Field(welcome, "nonce"));
  cluster::v1::WorkerMessage proof;
  proof.mutable_proof()->set_signature(ProveClaim(
      "a secret of the job", {.nonce = nonce, .job_id = "frozen", .rank = 0, .job_size = 1}));
  worker.SayBytes(proof.SerializeAsString());
  ASSERT_TRUE(Has(*worker.Hear(), "plan"));
  worker.Say("ready");
  ASSERT_TRUE(coordinator.WaitUntilServing());
  coordinator.StartDrain();
  std::unique_ptr<Message> end = worker.Hear();
  ASSERT_TRUE(Has(*end, "shutdown")) << end->DebugString();
  const Message& shutdown = Part(*end, "shutdown");
  EXPECT_EQ(shutdown.GetReflection()->GetInt32(shutdown, Field(shutdown, "exit_code")), 0);
}

}  // namespace
}  // namespace skein::coordinator
