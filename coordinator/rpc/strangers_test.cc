// Tests strangers on the port, and workers that lie: what they say is bounded, told apart and
// refused.
#include <chrono>
#include <functional>
#include <future>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/test_util.h"
#include "base/tls/job_key.h"
#include "coordinator/rpc/grpc_status.h"
#include "coordinator/rpc/hand_made_rank.h"
#include "coordinator/rpc/raw_call.h"
#include "coordinator/rpc/test_coordinator.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace skein::coordinator {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Le;
using ::testing::Not;
using ::testing::SizeIs;

grpc::Status GetJob(const TestCoordinator& coordinator, const std::string& id,
                    const std::string& secret, cluster::v1::JobStatus* job) {
  grpc::ClientContext context;
  cluster::v1::GetJobRequest request;
  request.set_job_id(id);
  request.set_job_key(PublicJobKey(secret));
  return cluster::v1::Cluster::NewStub(coordinator.channel())->GetJob(&context, request, job);
}

// ---- Who is who ----

TEST(StrangersTest, AnotherSecretIsAnotherJob) {
  TestCoordinator coordinator;
  // A stranger is first, with the id of a job that it saw.
  FakeJob stranger({.coordinator = coordinator.address(), .secret = "what a stranger makes up"});
  ASSERT_TRUE(stranger.WaitForPlan(0));
  FakeJob job({.coordinator = coordinator.address(), .size = 2});
  ASSERT_TRUE(job.WaitForPlan(0) && job.WaitForPlan(1));
  ASSERT_TRUE(TestCoordinator::WaitFor([&] { return coordinator.Status().jobs_size() == 2; }));

  cluster::v1::JobStatus found;
  ASSERT_TRUE(GetJob(coordinator, "job", kSecret, &found).ok());
  EXPECT_EQ(found.size(), 2);
  ASSERT_TRUE(GetJob(coordinator, "job", "what a stranger makes up", &found).ok());
  EXPECT_EQ(found.size(), 1);
  EXPECT_EQ(GetJob(coordinator, "job", "what nobody has said", &found).error_code(),
            grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(GetJob(coordinator, "other", kSecret, &found).error_code(),
            grpc::StatusCode::NOT_FOUND);
  grpc::ClientContext context;
  cluster::v1::GetJobRequest keyless;
  keyless.set_job_id("job");
  EXPECT_EQ(cluster::v1::Cluster::NewStub(coordinator.channel())
                ->GetJob(&context, keyless, &found)
                .error_code(),
            grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(coordinator.Status().DebugString(),
              AllOf(Not(HasSubstr("secret")), Not(HasSubstr("stranger"))));
}

TEST(StrangersTest, AJobIsFoundByItsSecretUntilAfterItsEnd) {
  TestCoordinator coordinator;
  FakeJob job({.coordinator = coordinator.address()});
  ASSERT_TRUE(coordinator.WaitUntilServing());
  cluster::v1::JobStatus found;
  ASSERT_TRUE(GetJob(coordinator, "job", kSecret, &found).ok());
  EXPECT_EQ(found.state(), "serving");
  job.SendFailure(0, "no more");
  ASSERT_TRUE(TestCoordinator::WaitFor([&] {
    EXPECT_TRUE(GetJob(coordinator, "job", kSecret, &found).ok());
    return found.state() == "lost";
  }));
  EXPECT_THAT(found.detail(), HasSubstr("no more"));
}

TEST(StrangersTest, AJobHasTheLayoutThatItAsksForAndAllItsRanksTheSame) {
  Daemon::Options options = TestOptions();
  options.model.limits.constraints.layout = {.tp_size = 1};
  TestCoordinator coordinator(std::move(options));
  FakeJob two({.coordinator = coordinator.address(), .job_id = "tp", .layout = "tp=2", .size = 2});
  FakeJob one({.coordinator = coordinator.address(), .job_id = "own", .size = 2});
  FakeJob stages(
      {.coordinator = coordinator.address(), .job_id = "pp", .layout = "pp=2,tp=1", .size = 2});
  const auto layout_of = [&](const std::string& id) {
    cluster::v1::JobStatus job;
    EXPECT_TRUE(GetJob(coordinator, id, kSecret, &job).ok());
    const auto& layout = job.plan().layout();
    return absl::StrCat(layout.tp_size(), layout.pp_size(), layout.dp_size());
  };
  for (FakeJob* job : {&two, &one, &stages}) ASSERT_TRUE(job->WaitForPlan(0));
  EXPECT_EQ(layout_of("tp"), "211");
  EXPECT_EQ(layout_of("own"), "112");
  EXPECT_EQ(layout_of("pp"), "121");

  HandMadeRank first(coordinator), second(coordinator);
  cluster::v1::WorkerMessage hello = HelloOf("unlike", 2);
  hello.mutable_hello()->set_layout("tp=2");
  first.Introduce(hello);
  cluster::v1::JobStatus job;
  ASSERT_TRUE(
      TestCoordinator::WaitFor([&] { return GetJob(coordinator, "unlike", kSecret, &job).ok(); }));
  hello.mutable_hello()->set_rank(1);
  hello.mutable_hello()->set_layout("");
  second.Introduce(hello);
  const grpc::Status end = second.End();
  EXPECT_EQ(end.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_THAT(end.error_message(), HasSubstr("give all ranks of a job the same --layout"));
}

// ---- What they say ----

TEST(StrangersTest, WhatAHelloSaysIsBoundedAndPrintable) {
  TestCoordinator coordinator;
  const std::string long_text(30 << 20, 'x');
  struct Case {
    std::function<void(cluster::v1::Hello&)> fill;
    std::string says;
  };
  const std::vector<Case> cases = {
      {[&](auto& hello) { hello.set_job_id(long_text); }, "job_id: 31457280 bytes; at most 256"},
      {[&](auto& hello) { hello.set_version(long_text); }, "version: 31457280 bytes"},
      {[&](auto& hello) { hello.set_layout(long_text); }, "layout: 31457280 bytes"},
      {[&](auto& hello) { hello.set_job_key(long_text); }, "job_key: 31457280 bytes"},
      {[&](auto& hello) { hello.mutable_device()->set_name(std::string(257, 'd')); },
       "device: name"},
      {[&](auto& hello) { hello.mutable_device()->set_kind("abacus"); }, "device: kind"},
      {[&](auto& hello) { hello.mutable_node()->set_host(std::string(257, 'h')); },
       "node: host: 257 bytes"},
      {[&](auto& hello) { hello.mutable_node()->set_cores(8193); }, "8193; 1 to 8192 can be"},
      {[&](auto& hello) {
         hello.mutable_told()->add_hosts();
         hello.mutable_told()->add_hosts();
       },
       "told: a rank tells of its own host alone"},
      {[&](auto& hello) { hello.mutable_told()->add_hosts()->set_count(2); },
       "told: a rank tells of its own host alone"},
      {[&](auto& hello) { hello.mutable_told()->add_hosts()->set_cpu(long_text); },
       "at most 1048576 are allowed"},
      {[&](auto& hello) { hello.set_job_id(""); }, "job_id: empty"},
      {[&](auto& hello) { hello.set_job_id("a\x1b[2J"); }, "'a\\x1b[2J' has characters"},
      {[&](auto& hello) { hello.set_layout("tp=x"); }, "tp=x"},
  };
  for (const Case& c : cases) {
    HandMadeRank attach(coordinator);
    cluster::v1::WorkerMessage hello = HelloOf("job");
    c.fill(*hello.mutable_hello());
    attach.Say(hello);
    const grpc::Status end = attach.End();
    EXPECT_EQ(end.error_code(), grpc::StatusCode::INVALID_ARGUMENT) << end.error_message();
    EXPECT_THAT(end.error_message(), HasSubstr(c.says));
  }
  EXPECT_EQ(coordinator.Status().jobs_size(), 0);

  HandMadeRank attach(coordinator);
  cluster::v1::WorkerMessage hello = HelloOf("job");
  hello.mutable_hello()->mutable_node()->set_host("host\n\x1b[31m");
  attach.Introduce(hello);
  ASSERT_TRUE(TestCoordinator::WaitFor([&] { return coordinator.Status().jobs_size() == 1; }));
  EXPECT_EQ(coordinator.Status().jobs(0).ranks(0).host(), "host\\x0a\\x1b[31m");
}

TEST(StrangersTest, AFailuresWordsAreCutAndPrintable) {
  TestCoordinator coordinator;
  FakeJob job({.coordinator = coordinator.address()});
  ASSERT_TRUE(coordinator.WaitUntilServing());
  job.SendFailure(0, "it burns\x1b[31m" + std::string(1 << 20, '!'));
  const absl::Status end = job.WaitForEnd(0);
  EXPECT_THAT(end, StatusIs(absl::StatusCode::kAborted, HasSubstr("it burns\\x1b[31m!!!")));
  cluster::v1::JobStatus lost;
  ASSERT_TRUE(GetJob(coordinator, "job", kSecret, &lost).ok());
  EXPECT_THAT(lost.detail(), AllOf(HasSubstr("it burns\\x1b[31m!!!"), SizeIs(Le(1200u))));
}

TEST(StrangersTest, AnErrorAlwaysArrives) {
  TestCoordinator coordinator;
  FakeJob job({.coordinator = coordinator.address()});
  ASSERT_TRUE(coordinator.WaitUntilServing());
  v1::GenerateRequest request = PromptRequest("x");
  for (const char* letter : {"x", "ü", "\n", "\x1b"}) {  // percent-encoding makes them longer
    std::string name;
    while (name.size() < 100'000) name += letter;
    request.set_model(name);
    const Answer answer = coordinator.Ask(request);
    EXPECT_EQ(answer.status.error_code(), grpc::StatusCode::NOT_FOUND);
    EXPECT_THAT(answer.status.error_message(), HasSubstr("is not served here; 'fake' is"));
  }
}

TEST(StrangersTest, AStatusFitsIntoTheHeadersThatClientsTake) {
  const grpc::Status status = ToGrpc(absl::InternalError(std::string(100'000, '\n') + "\x1b"));
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INTERNAL);
  EXPECT_THAT(status.error_message(), SizeIs(Le(2048u)));
  EXPECT_EQ(ToGrpc(absl::InternalError("a\nb\x1b")).error_message(), "a\nb\\x1b");
}

TEST(StrangersTest, UnreadableBytesAreRefusedByWord) {
  TestCoordinator coordinator;
  const auto status_of = [&](const std::string& method) {
    return RawStatus(coordinator.channel(), method, "\xff\xff\xff\xff");
  };
  for (const auto& [method, type] : std::vector<std::pair<std::string, std::string>>{
           {"/skein.v1.Inference/Generate", "skein.v1.GenerateRequest"},
           {"/skein.v1.Inference/GenerateMany", "GenerateManyRequest"},
           {"/skein.v1.Inference/ListModels", "skein.v1.ListModelsRequest"},
           {"/skein.cluster.v1.Cluster/GetStatus", "skein.cluster.v1.GetStatusRequest"},
           {"/skein.cluster.v1.Cluster/GetJob", "skein.cluster.v1.GetJobRequest"},
           {"/skein.cluster.v1.Cluster/Attach", "skein.cluster.v1.WorkerMessage"}}) {
    const grpc::Status status = status_of(method);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT) << method;
    EXPECT_THAT(status.error_message(), HasSubstr(type)) << method;
  }
}

TEST(StrangersTest, AnAttachThatNeverSpeaksIsEnded) {
  Daemon::Options options = TestOptions();
  options.server.cluster.hello_time = absl::Milliseconds(200);
  TestCoordinator coordinator(std::move(options));
  HandMadeRank silent(coordinator);
  const grpc::Status end = silent.End();
  EXPECT_EQ(end.error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  EXPECT_THAT(end.error_message(), HasSubstr("it has not proved within 200ms which rank it is"));

  // A rank that has spoken stays.
  FakeJob job({.coordinator = coordinator.address(), .size = 2, .load = false});
  ASSERT_TRUE(job.WaitForPlan(0));
  HandMadeRank another(coordinator);
  EXPECT_EQ(another.End().error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  EXPECT_EQ(coordinator.Status().jobs(0).state(), "loading");
}

// ---- Workers that lie ----

TEST(StrangersTest, AWorkerThatReportsWhatCannotBeLosesItsJobAndTheRequestMoves) {
  using serving::Finish;
  v1::GenerateRequest ask = PromptRequest("x");
  ask.set_max_tokens(5);
  ask.mutable_sampling()->set_logprobs(1);
  struct Case {
    std::function<void(serving::AnswerOutput&)> lie;
    std::string says;
  };
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<Case> cases = {
      {[](auto& output) { output.tokens = {{.id = 257}}; }, "token 257 of a vocabulary of 257"},
      {[](auto& output) { output.tokens = {{.id = -2}}; }, "token 4294967294"},
      {[&](auto& output) { output.tokens = {{.id = 1, .logprob = nan}}; }, "probability of nan"},
      {[](auto& output) { output.finish = Finish::kMaxTokens; }, "after 1 of 5"},
      {[](auto& output) { output.finish = Finish::kEos; }, "whose last token is none"},
      {[](auto& output) { output.finish = Finish::kCancelled; }, "that nobody asked for"},
      {[](auto& output) { output.answer = 7; }, "answer 7 of a request for 1"},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.says);
    TestCoordinator coordinator;
    FakeJob liar({.coordinator = coordinator.address(), .job_id = "liar"});
    ASSERT_TRUE(coordinator.WaitUntilServing());
    auto answer = std::async(std::launch::async, [&] { return coordinator.Ask(ask); });
    std::optional<serving::Request> request = liar.WaitForRequest();
    ASSERT_TRUE(request.has_value());
    serving::AnswerOutput output = TextOutput(request->id, "a", Finish::kNotFinished);
    liar.Send(output);
    output.tokens.clear();
    c.lie(output);
    liar.Send(output);
    EXPECT_THAT(liar.WaitForEnd(0),
                StatusIs(absl::StatusCode::kAborted,
                         AllOf(HasSubstr("rank 0 on host0"),
                               HasSubstr("it reported what cannot be: "), HasSubstr(c.says))));
    FakeJob honest({.coordinator = coordinator.address(), .job_id = "honest"});
    request = honest.WaitForRequest();
    ASSERT_TRUE(request.has_value());
    EXPECT_THAT(request->answers.at(0).output, ::testing::ElementsAre('a'));
    honest.Send(TextOutput(request->id, "nd"));
    const Answer got = answer.get();
    EXPECT_TRUE(got.status.ok()) << got.status.error_message();
    EXPECT_EQ(got.text(), "and");
  }
}

}  // namespace
}  // namespace skein::coordinator
