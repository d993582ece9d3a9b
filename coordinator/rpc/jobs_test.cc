// Tests jobs over gRPC: attaching, losing, refusing, draining, and what clients and health checks
// see.
#include <grpcpp/generic/generic_stub.h>

#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/test_util.h"
#include "coordinator/rpc/hand_made_rank.h"
#include "coordinator/rpc/raw_call.h"
#include "coordinator/rpc/test_coordinator.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace skein::coordinator {
namespace {

using ::testing::AllOf;
using ::testing::Eq;
using ::testing::HasSubstr;
using ::testing::Optional;
using ::testing::SizeIs;

constexpr char kServing[] = "\x08\x01";     // HealthCheckResponse{status: SERVING}
constexpr char kNotServing[] = "\x08\x02";  // {status: NOT_SERVING}

std::string Health(TestCoordinator& coordinator, const std::string& service = "") {
  std::string request;
  if (!service.empty()) {
    request = absl::StrCat("\x0a", std::string(1, static_cast<char>(service.size())), service);
  }
  return RawCall(coordinator.channel(), "/grpc.health.v1.Health/Check", request);
}

cluster::v1::JobStatus JobOf(TestCoordinator& coordinator, const std::string& id) {
  const cluster::v1::ClusterStatus status = coordinator.Status();
  for (const auto& job : status.jobs()) {
    if (job.job_id() == id) return job;
  }
  return {};
}

std::future<Answer> AskLater(TestCoordinator& coordinator) {
  return std::async(std::launch::async,
                    [&coordinator] { return coordinator.Ask(PromptRequest("x")); });
}

Daemon::Options WithTimeout(absl::Duration heartbeat_timeout) {
  Daemon::Options options = TestOptions();
  options.cluster.heartbeat_timeout = heartbeat_timeout;
  return options;
}

TEST(JobsTest, HealthIsTrueFromTheStartToTheLossOfTheLastReplica) {
  TestCoordinator coordinator;
  EXPECT_EQ(Health(coordinator), kNotServing);
  EXPECT_EQ(Health(coordinator, "skein.v1.Inference"), kNotServing);
  FakeJob job({.coordinator = coordinator.address(), .size = 2, .load = false});
  ASSERT_TRUE(job.WaitForPlan(0) && job.WaitForPlan(1));
  EXPECT_EQ(JobOf(coordinator, "job").state(), "loading");
  job.SendReady(0);
  EXPECT_EQ(Health(coordinator), kNotServing);
  job.SendReady(1);
  ASSERT_TRUE(coordinator.WaitUntilServing());
  EXPECT_EQ(Health(coordinator), kServing);
  EXPECT_EQ(Health(coordinator, "skein.v1.Inference"), kServing);
  job.Kill(1);
  ASSERT_TRUE(coordinator.WaitUntilServing(false));
  EXPECT_EQ(Health(coordinator), kNotServing);
  EXPECT_EQ(Health(coordinator, "skein.v1.Inference"), kNotServing);
}

// Hears what Health.Watch says of a service, as long as the call goes on.
class HealthWatch {
 public:
  HealthWatch(TestCoordinator& coordinator, const std::string& service)
      : stub_(coordinator.channel()) {
    const grpc::Slice slice(
        absl::StrCat("\x0a", std::string(1, static_cast<char>(service.size())), service));
    const grpc::ByteBuffer request(&slice, 1);
    call_ = stub_.PrepareCall(&context_, "/grpc.health.v1.Health/Watch", &queue_);
    call_->StartCall(nullptr);
    Next();
    call_->WriteLast(request, grpc::WriteOptions(), nullptr);
    Next();
    call_->Read(&answer_, nullptr);
  }
  ~HealthWatch() {
    context_.TryCancel();
    queue_.Shutdown();
    void* tag = nullptr;
    for (bool ok = false; queue_.Next(&tag, &ok);) {
    }
  }

  // Returns the next word; "" when none comes within `patience`.
  std::string Word(absl::Duration patience) {
    void* tag = nullptr;
    bool ok = false;
    const auto deadline = std::chrono::system_clock::now() + absl::ToChronoMilliseconds(patience);
    if (queue_.AsyncNext(&tag, &ok, deadline) != grpc::CompletionQueue::GOT_EVENT || !ok) return "";
    grpc::Slice bytes;
    EXPECT_TRUE(answer_.DumpToSingleSlice(&bytes).ok());
    call_->Read(&answer_, nullptr);
    return std::string(reinterpret_cast<const char*>(bytes.begin()), bytes.size());
  }

 private:
  void Next() {
    void* tag = nullptr;
    bool ok = false;
    queue_.Next(&tag, &ok);
  }

  grpc::GenericStub stub_;
  grpc::ClientContext context_;
  grpc::CompletionQueue queue_;
  std::unique_ptr<grpc::GenericClientAsyncReaderWriter> call_;
  grpc::ByteBuffer answer_;
};

TEST(JobsTest, AHealthWatchHearsEachChangeOnceAndNothingOfOtherServices) {
  constexpr char kUnknownService[] = "\x08\x03";
  constexpr absl::Duration kLong = absl::Seconds(20);
  TestCoordinator coordinator;
  HealthWatch ours(coordinator, "skein.v1.Inference");
  HealthWatch unknown(coordinator, "nobody.v1.Knows");
  EXPECT_EQ(ours.Word(kLong), kNotServing);
  EXPECT_EQ(unknown.Word(kLong), kUnknownService);
  FakeJob first({.coordinator = coordinator.address(), .job_id = "first"});
  EXPECT_EQ(ours.Word(kLong), kServing);
  FakeJob second({.coordinator = coordinator.address(), .job_id = "second"});
  ASSERT_TRUE(
      TestCoordinator::WaitFor([&] { return JobOf(coordinator, "second").state() == "serving"; }));
  first.Kill(0);
  ASSERT_TRUE(
      TestCoordinator::WaitFor([&] { return JobOf(coordinator, "first").state() == "lost"; }));
  second.Kill(0);
  // The second job's coming and the first one's end changed nothing.
  EXPECT_EQ(ours.Word(kLong), kNotServing);
  EXPECT_EQ(unknown.Word(absl::ZeroDuration()), "");
}

TEST(JobsTest, ServicesCanBeReflected) {
  TestCoordinator coordinator;
  const std::string services = RawCall(
      coordinator.channel(), "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
      std::string("\x3a\x00", 2));  // ServerReflectionRequest{list_services: ""}
  EXPECT_THAT(services,
              AllOf(HasSubstr("skein.v1.Inference"), HasSubstr("skein.cluster.v1.Cluster"),
                    HasSubstr("grpc.health.v1.Health")));
}

TEST(JobsTest, TheStatusShowsPlanRanksAndSpeed) {
  TestCoordinator coordinator;
  FakeJob job({.coordinator = coordinator.address(), .size = 2});
  ASSERT_TRUE(coordinator.WaitUntilServing());
  const cluster::v1::ClusterStatus status = coordinator.Status();
  EXPECT_EQ(status.version(), "test");
  EXPECT_EQ(status.model_name(), "fake");
  ASSERT_THAT(status.jobs(), SizeIs(1));
  EXPECT_EQ(status.jobs(0).state(), "serving");
  EXPECT_EQ(status.jobs(0).plan().layout().dp_size(), 2);
  EXPECT_THAT(status.jobs(0).plan_table(), HasSubstr("rank"));
  ASSERT_THAT(status.jobs(0).ranks(), SizeIs(2));
  EXPECT_EQ(status.jobs(0).ranks(1).host(), "host1");
  EXPECT_EQ(status.jobs(0).ranks(1).pid(), 1001);
  EXPECT_EQ(status.jobs(0).ranks(1).state(), "ready");
  EXPECT_EQ(status.jobs(0).ranks(1).bytes_read(), 100);
  EXPECT_THAT(status.jobs(0).replicas(), SizeIs(2));
}

TEST(JobsTest, TheStatusShowsWhatReplicasReport) {
  TestCoordinator coordinator;
  FakeJob job({.coordinator = coordinator.address(),
               .replica_load = {.running = 1,
                                .waiting = 2,
                                .total_pages = 3,
                                .free_pages = 4,
                                .used_pages = 5,
                                .shared_pages = 6,
                                .cached_pages = 7,
                                .total_swap_pages = 8,
                                .free_swap_pages = 9,
                                .steps = 10,
                                .prompt_tokens = 11,
                                .cached_tokens = 12,
                                .preemptions_swapped = 13,
                                .preemptions_recomputed = 14,
                                .host_time = absl::Seconds(15.5)}});
  ASSERT_TRUE(coordinator.WaitUntilServing());
  auto answer = AskLater(coordinator);
  const auto request = job.WaitForRequest();
  ASSERT_TRUE(request.has_value());
  job.Send(TextOutput(request->id, "x"));
  EXPECT_TRUE(answer.get().status.ok());
  const cluster::v1::ReplicaLoad load = JobOf(coordinator, "job").replicas(0).load();
  EXPECT_EQ(load.running(), 1);
  EXPECT_EQ(load.waiting(), 2);
  EXPECT_EQ(load.total_pages(), 3);
  EXPECT_EQ(load.free_pages(), 4);
  EXPECT_EQ(load.used_pages(), 5);
  EXPECT_EQ(load.shared_pages(), 6);
  EXPECT_EQ(load.cached_pages(), 7);
  EXPECT_EQ(load.total_swap_pages(), 8);
  EXPECT_EQ(load.free_swap_pages(), 9);
  EXPECT_EQ(load.steps(), 10);
  EXPECT_EQ(load.prompt_tokens(), 11);
  EXPECT_EQ(load.cached_tokens(), 12);
  EXPECT_EQ(load.preemptions_swapped(), 13);
  EXPECT_EQ(load.preemptions_recomputed(), 14);
  EXPECT_EQ(load.host_seconds(), 15.5);
}

TEST(JobsTest, ALostJobEndsAloneAndItsRequestsWhenNoOtherComes) {
  Daemon::Options options = TestOptions();
  options.replica_wait = absl::ZeroDuration();
  TestCoordinator coordinator(std::move(options));
  FakeJob first({.coordinator = coordinator.address(), .job_id = "first", .size = 2});
  ASSERT_TRUE(coordinator.WaitUntilServing());
  std::vector<std::future<Answer>> lost;
  for (int i = 0; i < 2; ++i) {
    lost.push_back(AskLater(coordinator));
    const auto request = first.WaitForRequest();
    ASSERT_TRUE(request.has_value());
    first.Send(TextOutput(request->id, "begun", serving::Finish::kNotFinished));
  }
  FakeJob loading({.coordinator = coordinator.address(), .job_id = "loading", .load = false});
  ASSERT_TRUE(loading.WaitForPlan(0));

  first.Kill(1);
  for (auto& future : lost) {
    const Answer answer = future.get();
    EXPECT_EQ(answer.status.error_code(), grpc::StatusCode::UNAVAILABLE);
    EXPECT_THAT(answer.status.error_message(),
                AllOf(HasSubstr("--replica-wait"), HasSubstr("job first"),
                      HasSubstr("rank 1 on host1 (pid 1001)")));
    ASSERT_TRUE(answer.last().has_error());
    EXPECT_EQ(answer.last().error().code(), static_cast<int>(grpc::StatusCode::UNAVAILABLE));
    EXPECT_EQ(answer.last().error().message(), answer.status.error_message());
    EXPECT_EQ(answer.text(), "begun");
  }
  EXPECT_THAT(first.WaitForShutdown(0), Optional(Eq(1)));
  EXPECT_EQ(JobOf(coordinator, "first").state(), "lost");
  EXPECT_THAT(JobOf(coordinator, "first").detail(), HasSubstr("host1"));
  EXPECT_FALSE(coordinator.Status().serving());

  loading.SendReady(0);
  EXPECT_TRUE(coordinator.WaitUntilServing());
}

TEST(JobsTest, ASilentRankLosesItsJob) {
  TestCoordinator coordinator(WithTimeout(absl::Seconds(2)));
  FakeJob silent({.coordinator = coordinator.address(), .job_id = "silent", .size = 2});
  FakeJob alive({.coordinator = coordinator.address(), .job_id = "alive"});
  ASSERT_TRUE(TestCoordinator::WaitFor([&] {
    return JobOf(coordinator, "silent").state() == "serving" &&
           JobOf(coordinator, "alive").state() == "serving";
  }));
  silent.Silence(1);
  EXPECT_THAT(silent.WaitForShutdown(0), Optional(Eq(1)));
  EXPECT_THAT(silent.WaitForEnd(1),
              StatusIs(absl::StatusCode::kAborted,
                       AllOf(HasSubstr("rank 1 on host1"), HasSubstr("has been silent"))));
  EXPECT_EQ(JobOf(coordinator, "alive").state(), "serving");
}

TEST(JobsTest, ALeaderThatTakesUpNothingLosesItsJobAndTheRequestMoves) {
  Daemon::Options options = TestOptions();
  options.cluster.progress_timeout = absl::Seconds(1);
  TestCoordinator coordinator(std::move(options));
  FakeJob deaf({.coordinator = coordinator.address(), .job_id = "deaf", .acknowledges = false});
  ASSERT_TRUE(coordinator.WaitUntilServing());
  auto answer = AskLater(coordinator);
  ASSERT_TRUE(deaf.WaitForRequest().has_value());
  FakeJob other({.coordinator = coordinator.address(), .job_id = "other"});
  EXPECT_THAT(deaf.WaitForEnd(0),
              StatusIs(absl::StatusCode::kAborted, HasSubstr("has not taken up what was sent")));
  const auto request = other.WaitForRequest();
  ASSERT_TRUE(request.has_value());
  other.Send(TextOutput(request->id, "moved"));
  EXPECT_EQ(answer.get().text(), "moved");
  EXPECT_EQ(JobOf(coordinator, "other").state(), "serving");
}

TEST(JobsTest, ALeaderWhoseThreadIsFrozenLosesItsJob) {
  TestCoordinator coordinator;
  FakeJob job({.coordinator = coordinator.address()});
  ASSERT_TRUE(coordinator.WaitUntilServing());
  job.Freeze(0, "scheduler", 5.6);
  EXPECT_THAT(job.WaitForEnd(0),
              StatusIs(absl::StatusCode::kAborted,
                       HasSubstr("its thread 'scheduler' has not moved for 6s")));
}

TEST(JobsTest, AFailureEndsTheRankAndItsJob) {
  TestCoordinator coordinator;
  FakeJob job({.coordinator = coordinator.address(), .size = 2, .load = false});
  ASSERT_TRUE(job.WaitForPlan(0) && job.WaitForPlan(1));
  job.SendFailure(1, "host1: /models/bard has another identity");
  EXPECT_THAT(job.WaitForEnd(1), StatusIs(absl::StatusCode::kAborted, HasSubstr("identity")));
  EXPECT_THAT(job.WaitForShutdown(0), Optional(Eq(1)));
  EXPECT_THAT(JobOf(coordinator, "job").detail(),
              AllOf(HasSubstr("rank 1 on host1"), HasSubstr("/models/bard")));
}

TEST(JobsTest, WhatDoesNotFitIsRefusedByName) {
  Daemon::Options options = TestOptions();
  options.model.limits.constraints.layout.tp_size = 3;  // of 4 heads
  TestCoordinator coordinator(std::move(options));
  FakeJob unplannable({.coordinator = coordinator.address(), .job_id = "a", .size = 3});
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_THAT(unplannable.WaitForEnd(rank),
                StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("3")));
  }
}

TEST(JobsTest, AStreamBeginsWithHello) {
  TestCoordinator coordinator;
  const auto stub = cluster::v1::Cluster::NewStub(coordinator.channel());
  struct Case {
    std::function<void(cluster::v1::WorkerMessage&)> fill;
    std::string says;
  };
  const std::vector<Case> cases = {
      {[](auto& message) { message.mutable_heartbeat(); }, "must be Hello"},
      {[](auto&) {}, "must be Hello"},
      {[](auto& message) {
         message.mutable_hello()->set_job_id("a");
         message.mutable_hello()->set_job_key(std::string(32, 'k'));
       },
       "host"},
  };
  for (const Case& c : cases) {
    grpc::ClientContext context;
    const auto stream = stub->Attach(&context);
    cluster::v1::WorkerMessage message;
    c.fill(message);
    stream->Write(message);
    cluster::v1::CoordinatorMessage answer;
    EXPECT_FALSE(stream->Read(&answer));
    const grpc::Status status = stream->Finish();
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT) << status.error_message();
    EXPECT_THAT(status.error_message(), HasSubstr(c.says));
  }
}

// Some 10,000 answers fit into the windows and buffers on their way (64 KiB each, 7 bytes an
// answer); of the others, one waits.
TEST(JobsTest, ARankThatDoesNotReadPilesUpNoHeartbeats) {
  constexpr int kBeats = 60'000;
  TestCoordinator coordinator;
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);  // or the window would grow
  HandMadeRank rank(grpc::CreateCustomChannel(coordinator.address(),
                                              grpc::InsecureChannelCredentials(), arguments));
  HandMadeRank::Stream* const stream = &rank.stream();
  rank.Introduce(HelloOf("deaf", 2));  // never complete
  cluster::v1::WorkerMessage message;
  message.mutable_heartbeat();
  for (int i = 0; i < kBeats; ++i) {
    ASSERT_TRUE(stream->Write(message, grpc::WriteOptions().set_buffer_hint()));
  }
  // The coordinator has heard all before this, and ends the stream after what it has to say.
  message.mutable_failure()->set_message("deaf");
  ASSERT_TRUE(stream->Write(message));
  ASSERT_TRUE(
      TestCoordinator::WaitFor([&] { return JobOf(coordinator, "deaf").state() == "lost"; }));
  int answers = 0;
  for (cluster::v1::CoordinatorMessage answer; stream->Read(&answer);) {
    answers += answer.has_heartbeat();
  }
  EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::ABORTED);
  EXPECT_GT(answers, 0);
  EXPECT_LT(answers, kBeats / 2);
}

TEST(JobsTest, ASecondCopyThatDiffersIsRefused) {
  TestCoordinator coordinator;
  FakeJob first({.coordinator = coordinator.address(), .job_id = "first"});
  ASSERT_TRUE(coordinator.WaitUntilServing());
  FakeJob twin({.coordinator = coordinator.address(), .job_id = "first"});
  EXPECT_THAT(twin.WaitForEnd(0), StatusIs(absl::StatusCode::kAlreadyExists, HasSubstr("host0")));
  FakeJob other({.coordinator = coordinator.address(),
                 .job_id = "other",
                 .digest = "x",
                 .model_path = "/copies/fake"});
  EXPECT_THAT(other.WaitForEnd(0),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr("host0:/copies/fake"), HasSubstr("host0:/models/fake"))));
  EXPECT_EQ(JobOf(coordinator, "first").state(), "serving");
}

TEST(JobsTest, ADrainFinishesWhatRunsThenSendsWorkersHome) {
  TestCoordinator coordinator;
  FakeJob job({.coordinator = coordinator.address(), .size = 2});
  ASSERT_TRUE(coordinator.WaitUntilServing());
  auto running = AskLater(coordinator);
  const auto request = job.WaitForRequest();
  ASSERT_TRUE(request.has_value());
  coordinator.StartDrain();
  ASSERT_TRUE(coordinator.WaitUntilServing(false));
  EXPECT_TRUE(coordinator.Status().draining());
  EXPECT_EQ(Health(coordinator), kNotServing);
  const Answer refused = coordinator.Ask(PromptRequest("x"));
  EXPECT_EQ(refused.status.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_THAT(refused.status.error_message(), HasSubstr("shutting down"));
  job.Send(TextOutput(request->id, "to the end"));
  EXPECT_EQ(running.get().text(), "to the end");
  EXPECT_THAT(job.WaitForShutdown(0), Optional(Eq(0)));
  EXPECT_THAT(job.WaitForShutdown(1), Optional(Eq(0)));
  EXPECT_TRUE(coordinator.WaitUntilDrained());
}

TEST(JobsTest, ADrainDoesNotWaitForever) {
  Daemon::Options options = TestOptions();
  options.drain_timeout = absl::Milliseconds(200);
  TestCoordinator coordinator(std::move(options));
  FakeJob job({.coordinator = coordinator.address()});
  ASSERT_TRUE(coordinator.WaitUntilServing());
  auto running = AskLater(coordinator);
  ASSERT_TRUE(job.WaitForRequest().has_value());
  coordinator.StartDrain();
  const Answer answer = running.get();
  EXPECT_EQ(answer.status.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_THAT(answer.status.error_message(), HasSubstr("drain timeout"));
  EXPECT_TRUE(answer.last().has_error());
  EXPECT_THAT(job.WaitForShutdown(0), Optional(Eq(0)));
  EXPECT_TRUE(coordinator.WaitUntilDrained());
}

}  // namespace
}  // namespace skein::coordinator
