// Several models in one coordinator, which come and go while it runs.
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "coordinator/rpc/admin_client_for_tests.h"
#include "coordinator/rpc/raw_call.h"
#include "coordinator/rpc/test_coordinator.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace skein::coordinator {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::Eq;
using ::testing::HasSubstr;
using ::testing::Optional;

ServedModel NamedModel(const std::string& name, int64_t context = 32) {
  ServedModel model = MakeFakeModel({}, context);
  model.name = name;
  model.path = "checkpoints/" + name;
  return model;
}

std::function<std::vector<serving::AnswerOutput>(const serving::Request&)> Saying(
    const std::string& text) {
  return [text](const serving::Request& request) {
    return std::vector<serving::AnswerOutput>{TextOutput(request.id, text)};
  };
}

v1::GenerateRequest RequestFor(const std::string& model) {
  v1::GenerateRequest request = PromptRequest("abc");
  request.set_model(model);
  return request;
}

// Two models: "fake" and "chat".
class ModelsTest : public ::testing::Test {
 protected:
  static Daemon::Options Options() {
    Daemon::Options options = TestOptions();
    options.replica_wait = absl::Seconds(3);
    return options;
  }
  ModelsTest() { coordinator_.AddModel(NamedModel("chat", 64)); }

  std::unique_ptr<FakeJob> StartJob(const std::string& id, const std::string& model,
                                    const std::string& says = "") {
    FakeJobOptions options{.coordinator = coordinator_.address(), .job_id = id, .model = model};
    if (!says.empty()) options.script = Saying(says);
    auto job = std::make_unique<FakeJob>(std::move(options));
    EXPECT_TRUE(WaitForState(id, "serving"));
    return job;
  }
  cluster::v1::JobStatus Job(const std::string& id) {
    const cluster::v1::ClusterStatus status = coordinator_.Status();
    for (const auto& job : status.jobs()) {
      if (job.job_id() == id) return job;
    }
    return {};
  }
  bool WaitForState(const std::string& id, const std::string& state) {
    return TestCoordinator::WaitFor([&] { return Job(id).state() == state; });
  }
  std::string StateOf(const std::string& model) {
    const cluster::v1::ClusterStatus status = coordinator_.Status();
    for (const auto& of : status.models()) {
      if (of.name() == model) return of.state();
    }
    return "";
  }
  Answer Ask(const std::string& model) { return coordinator_.Ask(RequestFor(model)); }
  std::future<Answer> AskLater(const std::string& model) {
    return std::async(std::launch::async, [this, model] { return Ask(model); });
  }

  TestCoordinator coordinator_{Options()};
  AdminClient admin_{coordinator_.channel()};
};

TEST_F(ModelsTest, RequestsGoToJobsOfTheirModel) {
  const auto fake = StartJob("a", "fake", "I am fake");
  EXPECT_EQ(StateOf("fake"), "serving");
  EXPECT_EQ(StateOf("chat"), "waiting for workers");
  const Answer none = Ask("chat");
  EXPECT_EQ(none.status.error_code(), grpc::StatusCode::UNAVAILABLE);
  const auto chat = StartJob("b", "chat", "I am chat");
  EXPECT_EQ(Job("b").model_name(), "chat");
  EXPECT_EQ(Job("b").plan().model_path(), "checkpoints/chat");
  EXPECT_EQ(Job("b").plan().context_length(), 64);
  EXPECT_EQ(Job("a").plan().context_length(), 32);
  EXPECT_EQ(Ask("fake").text(), "I am fake");
  const Answer answer = Ask("chat");
  EXPECT_EQ(answer.text(), "I am chat");
  EXPECT_EQ(answer.events.front().accepted().model(), "chat");
  const Answer nameless = Ask("");
  EXPECT_EQ(nameless.status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(nameless.status.error_message(), HasSubstr("'fake', 'chat'"));
  const Answer unknown = Ask("gpt");
  EXPECT_EQ(unknown.status.error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_THAT(unknown.status.error_message(), HasSubstr("'fake', 'chat'"));
  EXPECT_EQ(coordinator_.Status().model_name(), "fake, chat");
}

TEST_F(ModelsTest, AJobThatSaysNoneGetsTheModelWithTheFewestJobs) {
  FakeJob first({.coordinator = coordinator_.address(), .job_id = "a"});
  ASSERT_TRUE(WaitForState("a", "serving"));
  FakeJob second({.coordinator = coordinator_.address(), .job_id = "b"});
  ASSERT_TRUE(WaitForState("b", "serving"));
  FakeJob third({.coordinator = coordinator_.address(), .job_id = "c", .digest = "digest"});
  ASSERT_TRUE(WaitForState("c", "serving"));
  EXPECT_EQ(Job("a").model_name(), "fake");
  EXPECT_EQ(Job("b").model_name(), "chat");
  EXPECT_EQ(Job("c").model_name(), "fake");
}

// Weights are held against those of the same model alone.
TEST_F(ModelsTest, JobsOfUnlikeModelsMayReadOtherWeights) {
  FakeJob first({.coordinator = coordinator_.address(), .job_id = "a", .digest = "x"});
  ASSERT_TRUE(WaitForState("a", "serving"));
  FakeJob second({.coordinator = coordinator_.address(), .job_id = "b", .digest = "y"});
  EXPECT_TRUE(WaitForState("b", "serving"));
  EXPECT_EQ(Job("a").state(), "serving");
}

TEST_F(ModelsTest, AJobOfAModelThatIsNotThereIsRefused) {
  FakeJob job({.coordinator = coordinator_.address(), .job_id = "a", .model = "gpt"});
  const absl::Status end = job.WaitForEnd(0);
  EXPECT_EQ(end.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(end.message()), AllOf(HasSubstr("'gpt'"), HasSubstr("'fake', 'chat'")));
}

TEST_F(ModelsTest, ALostJobsRequestsGoToNoOtherModel) {
  auto fake = StartJob("a", "fake");
  const auto chat = StartJob("b", "chat", "I am chat");
  auto running = AskLater("fake");
  ASSERT_TRUE(fake->WaitForRequest().has_value());
  fake->Kill(0);
  ASSERT_TRUE(WaitForState("a", "lost"));
  const auto again = StartJob("c", "fake", "I am fake");
  EXPECT_EQ(running.get().text(), "I am fake");
}

// gRPC's health service says that any model serves.
TEST_F(ModelsTest, HealthIsOfAllModels) {
  const auto health = [&] {
    return RawCall(coordinator_.channel(), "/grpc.health.v1.Health/Check", "");
  };
  const std::string serving("\x08\x01"), not_serving("\x08\x02");
  EXPECT_EQ(health(), not_serving);
  auto fake = StartJob("a", "fake");
  auto chat = StartJob("b", "chat");
  EXPECT_EQ(health(), serving);
  fake->Kill(0);
  ASSERT_TRUE(WaitForState("a", "lost"));
  EXPECT_EQ(health(), serving);
  chat->Kill(0);
  ASSERT_TRUE(WaitForState("b", "lost"));
  EXPECT_EQ(health(), not_serving);
}

// ---- skein drain ----

TEST_F(ModelsTest, ADrainedJobFinishesWhatItHasAndGetsNothingNew) {
  const auto drained = StartJob("a", "fake");
  auto running = AskLater("fake");
  const auto request = drained->WaitForRequest();
  ASSERT_TRUE(request.has_value());
  const auto other = StartJob("b", "fake", "from b");
  const auto answer = admin_.DrainJob("a");
  EXPECT_TRUE(answer.status.ok()) << answer.status.error_message();
  EXPECT_EQ(answer.response.model_name(), "fake");
  EXPECT_EQ(answer.response.requests(), 1);
  EXPECT_FALSE(answer.response.last_of_model());
  EXPECT_EQ(Job("a").state(), "draining");
  for (int i = 0; i < 4; ++i) EXPECT_EQ(Ask("fake").text(), "from b");
  EXPECT_EQ(Job("a").state(), "draining");
  drained->Send(TextOutput(request->id, "to the end"));
  EXPECT_EQ(running.get().text(), "to the end");
  EXPECT_THAT(drained->WaitForShutdown(0), Optional(Eq(0)));
  EXPECT_TRUE(WaitForState("a", "ended"));
  EXPECT_EQ(Job("a").detail(), "drained");
  EXPECT_EQ(Ask("fake").text(), "from b");
  EXPECT_EQ(admin_.DrainJob("a").status.error_code(), grpc::StatusCode::NOT_FOUND);
}

// Under the retries' limit, too: nothing has failed.
TEST_F(ModelsTest, WhatIsLeftAfterTheTimeoutGoesOnElsewhere) {
  const auto drained = StartJob("a", "fake");
  auto running = AskLater("fake");
  const auto request = drained->WaitForRequest();
  ASSERT_TRUE(request.has_value());
  serving::AnswerOutput begin = TextOutput(request->id, "begun ", serving::Finish::kNotFinished);
  drained->Send(begin);
  const auto other = StartJob("b", "fake", "and ended");
  ASSERT_TRUE(admin_.DrainJob("a", 0.2).status.ok());
  EXPECT_EQ(running.get().text(), "begun and ended");
  EXPECT_THAT(drained->WaitForShutdown(0), Optional(Eq(0)));
  EXPECT_THAT(Job("a").detail(), HasSubstr("its timeout passed: 1 request"));
  EXPECT_EQ(coordinator_.Status().migrations(), 1);
}

TEST_F(ModelsTest, DrainingTheLastJobSaysSoAndItsRequestsWaitForAnother) {
  const auto chat = StartJob("c", "chat", "I am chat");
  const auto last = StartJob("a", "fake");
  auto running = AskLater("fake");
  ASSERT_TRUE(last->WaitForRequest().has_value());
  const auto answer = admin_.DrainJob("a", 0.1);
  EXPECT_TRUE(answer.response.last_of_model());
  EXPECT_THAT(last->WaitForShutdown(0), Optional(Eq(0)));
  EXPECT_EQ(Ask("fake").status.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(Ask("chat").text(), "I am chat");
  const auto next = StartJob("b", "fake", "from b");
  EXPECT_EQ(running.get().text(), "from b");
}

TEST_F(ModelsTest, WithoutAnotherJobTheyFailAndSayWhy) {
  const auto last = StartJob("a", "fake");
  auto running = AskLater("fake");
  ASSERT_TRUE(last->WaitForRequest().has_value());
  ASSERT_TRUE(admin_.DrainJob("a", 10).status.ok());
  EXPECT_THAT(Ask("fake").status.error_message(), HasSubstr("is being drained"));
  ASSERT_TRUE(admin_.DrainJob("a", 0).status.ok());  // another timeout
  const Answer answer = running.get();
  EXPECT_EQ(answer.status.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_THAT(answer.status.error_message(), HasSubstr("drained, and its timeout passed"));
}

TEST_F(ModelsTest, AJobThatLoadsIsDrainedAtOnce) {
  FakeJob job({.coordinator = coordinator_.address(), .job_id = "a", .load = false});
  ASSERT_TRUE(WaitForState("a", "loading"));
  ASSERT_TRUE(admin_.DrainJob("a").status.ok());
  EXPECT_THAT(job.WaitForShutdown(0), Optional(Eq(0)));
  EXPECT_EQ(Job("a").state(), "ended");
}

// ---- skein model ----

TEST_F(ModelsTest, ARemovedModelFinishesWhatItHasAndIsGone) {
  const auto fake = StartJob("a", "fake");
  const auto chat = StartJob("b", "chat", "I am chat");
  auto running = AskLater("fake");
  const auto request = fake->WaitForRequest();
  ASSERT_TRUE(request.has_value());
  const auto removed = admin_.RemoveModel("fake");
  EXPECT_TRUE(removed.status.ok());
  EXPECT_EQ(removed.response.requests(), 1);
  EXPECT_EQ(removed.response.jobs(), 1);
  EXPECT_EQ(StateOf("fake"), "draining");
  const Answer refused = Ask("fake");
  EXPECT_EQ(refused.status.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_THAT(refused.status.error_message(), HasSubstr("'fake' is being removed"));
  EXPECT_EQ(Ask("chat").text(), "I am chat");
  fake->Send(TextOutput(request->id, "to the end"));
  EXPECT_EQ(running.get().text(), "to the end");
  EXPECT_THAT(fake->WaitForShutdown(0), Optional(Eq(0)));
  EXPECT_TRUE(TestCoordinator::WaitFor([&] { return StateOf("fake").empty(); }));
  EXPECT_EQ(Ask("fake").status.error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(Ask("").text(), "I am chat");  // the only one now
  EXPECT_EQ(admin_.RemoveModel("fake").status.error_code(), grpc::StatusCode::NOT_FOUND);
  FakeJob late({.coordinator = coordinator_.address(), .job_id = "c", .model = "fake"});
  EXPECT_EQ(late.WaitForEnd(0).code(), absl::StatusCode::kNotFound);
}

TEST_F(ModelsTest, ARemovalDoesNotWaitForever) {
  const auto fake = StartJob("a", "fake");
  std::vector<std::future<Answer>> running;
  for (int i = 0; i < 3; ++i) running.push_back(AskLater("fake"));  // one waits
  ASSERT_TRUE(TestCoordinator::WaitFor([&] {
    return coordinator_.Status().running_requests() + coordinator_.Status().queued_requests() == 3;
  }));
  ASSERT_TRUE(admin_.RemoveModel("fake", 0.2).status.ok());
  for (auto& answer : running) {
    const Answer ended = answer.get();
    EXPECT_EQ(ended.status.error_code(), grpc::StatusCode::UNAVAILABLE);
    EXPECT_THAT(ended.status.error_message(),
                HasSubstr("'fake' is removed, and its drain timeout passed"));
  }
  EXPECT_THAT(fake->WaitForShutdown(0), Optional(Eq(0)));
}

TEST_F(ModelsTest, TheLastModelMayGo) {
  ASSERT_TRUE(admin_.RemoveModel("fake").status.ok());
  ASSERT_TRUE(admin_.RemoveModel("chat").status.ok());
  ASSERT_TRUE(TestCoordinator::WaitFor([&] { return coordinator_.Status().models().empty(); }));
  const Answer answer = Ask("");
  EXPECT_EQ(answer.status.error_code(), grpc::StatusCode::NOT_FOUND);
  FakeJob job({.coordinator = coordinator_.address(), .job_id = "a"});
  EXPECT_EQ(job.WaitForEnd(0).code(), absl::StatusCode::kNotFound);
}

TEST_F(ModelsTest, AModelComesFromItsFilesWithItsOwnLimits) {
  const auto added = admin_.AddModel("poet,bard=checkpoints/bard", {"--context-length=40"});
  ASSERT_TRUE(added.status.ok()) << added.status.error_message();
  EXPECT_EQ(added.response.name(), "poet");
  grpc::ClientContext context;
  v1::ListModelsResponse list;
  ASSERT_TRUE(coordinator_.inference().ListModels(&context, {}, &list).ok());
  ASSERT_EQ(list.models_size(), 3);
  EXPECT_EQ(list.models(2).name(), "poet");
  EXPECT_THAT(list.models(2).aliases(), ElementsAre("bard"));
  EXPECT_EQ(list.models(2).context_length(), 40);
  EXPECT_EQ(list.models(2).state(), "waiting for workers");
  const auto job = StartJob("a", "bard");
  EXPECT_EQ(Job("a").model_name(), "poet");
  EXPECT_EQ(Job("a").plan().context_length(), 40);
  auto running = AskLater("bard");
  const auto request = job->WaitForRequest();
  ASSERT_TRUE(request.has_value());
  EXPECT_LT(request->prompt.size(), 4u);  // by bard's tokenizer, with its first token
  job->Send({.request_id = request->id, .tokens = {{.id = 0}}, .finish = serving::Finish::kEos});
  running.get();
  // It goes and comes again.
  ASSERT_TRUE(admin_.RemoveModel("bard").status.ok());
  ASSERT_TRUE(TestCoordinator::WaitFor([&] { return StateOf("poet").empty(); }));
  EXPECT_TRUE(admin_.AddModel("poet=checkpoints/bard").status.ok());
}

TEST_F(ModelsTest, WhatIsWrongWithAModelIsSaidAndChangesNothing) {
  struct Case {
    std::string model, flag;
    grpc::StatusCode code;
    std::string says;
  };
  const std::vector<Case> cases = {
      {"x=/no/such/model", "", grpc::StatusCode::NOT_FOUND, "/no/such/model"},
      {"chat=checkpoints/bard", "", grpc::StatusCode::ALREADY_EXISTS, "'chat'"},
      {"x=checkpoints/bard", "--context-length=1000000", grpc::StatusCode::INVALID_ARGUMENT,
       "--context-length"},
      {"x=checkpoints/bard", "--listen=here", grpc::StatusCode::INVALID_ARGUMENT, "--listen"},
      {"x=checkpoints/bard", "--chat-template=/none", grpc::StatusCode::NOT_FOUND, "/none"},
      {"", "", grpc::StatusCode::INVALID_ARGUMENT, "model: the path is empty"}};
  for (const Case& wrong : cases) {
    const auto added =
        admin_.AddModel(wrong.model, wrong.flag.empty() ? std::vector<std::string>()
                                                        : std::vector<std::string>{wrong.flag});
    EXPECT_EQ(added.status.error_code(), wrong.code) << wrong.model << added.status.error_message();
    EXPECT_THAT(added.status.error_message(), HasSubstr(wrong.says));
    EXPECT_EQ(coordinator_.Status().models_size(), 2) << wrong.model;
  }
}

}  // namespace
}  // namespace skein::coordinator
