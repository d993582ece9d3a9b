// Real jobs of two models in one coordinator, drains and changes under load: answers are those of a
// coordinator that nobody touches.
#include <signal.h>

#include <filesystem>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/test_util.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "model/config/model_config.h"
#include "model/format/safetensors_writer.h"
#include "model/synthetic/synthetic.h"
#include "tests/cluster/cluster.h"
#include "tests/cluster/running_answer.h"

namespace skein::testing {
namespace {

using ::testing::HasSubstr;

constexpr char kBard[] = "checkpoints/bard";
constexpr char kFaultyWorker[] = "tests/fault/faulty_worker";

// A model of bard's tokenizer with fewer layers and other weights; returns its folder.
std::string MakeSmallModel() {
  namespace fs = std::filesystem;
  const std::string folder = ::testing::TempDir() + "/small";
  absl::StatusOr<model::ModelConfig> config = model::LoadModelConfig(kBard);
  SKEIN_EXPECT_OK(config.status());
  config->num_layers = 2;
  SKEIN_EXPECT_OK(
      model::WriteModelFolder(*config, *model::MakeSyntheticWeights(*config, "small"), folder));
  for (const char* const name : {"tokenizer.json", "tokenizer_config.json"}) {
    fs::copy_file(fs::path(kBard) / name, fs::path(folder) / name,
                  fs::copy_options::overwrite_existing);
  }
  return folder;
}

std::vector<v1::GenerateRequest> RequestsFor(const std::string& model, int count,
                                             uint32_t max_tokens) {
  std::vector<v1::GenerateRequest> requests;
  for (int i = 0; i < count; ++i) {
    v1::GenerateRequest& request = requests.emplace_back();
    request.set_model(model);
    request.set_prompt(absl::StrCat("Scene ", i, ": ROMEO:"));
    request.set_max_tokens(max_tokens);
    request.mutable_sampling()->set_seed(i);
    request.mutable_sampling()->set_ignore_eos(true);
  }
  return requests;
}

std::vector<std::string> TextsOf(const std::vector<Answer>& answers) {
  std::vector<std::string> texts;
  for (const Answer& answer : answers) {
    texts.push_back(answer.status.ok() ? answer.text : answer.status.error_message());
  }
  return texts;
}

// What `skein` says; its status must be this.
std::string Skein(const std::string& address, std::vector<std::string> arguments, int status = 0) {
  std::vector<std::string> argv = {FindProgram("client/skein"), "--coordinator=" + address};
  argv.insert(argv.end(), arguments.begin(), arguments.end());
  Process skein({.name = "skein", .argv = argv});
  EXPECT_EQ(skein.Wait(absl::Seconds(60)), status) << skein.Output();
  return skein.Output();
}

// Answers of a coordinator that serves the model alone.
std::vector<std::string> Alone(const std::string& path,
                               const std::vector<v1::GenerateRequest>& requests) {
  Cluster cluster({.model = path});
  cluster.StartJob(1);
  EXPECT_TRUE(cluster.WaitForServing(1));
  return TextsOf(cluster.GenerateAll(requests));
}

TEST(ModelsTest, TwoServeSideBySideAndComeAndGo) {
  const std::string small = MakeSmallModel();
  const auto of_bard = RequestsFor("bard", 4, 24);
  const auto of_small = RequestsFor("small", 4, 24);
  const std::vector<std::string> bards = Alone(kBard, of_bard);
  const std::vector<std::string> smalls = Alone(small, of_small);
  ASSERT_NE(bards, smalls);

  Cluster cluster(
      {.layout = "tp=2,pp=1",
       .coordinator_flags = {absl::StrCat("--model=small=", small, " --context-length=128")},
       .worker = kFaultyWorker});
  // Slow enough to be seen at it.
  Process& first = cluster.StartJob(2, {"--model=small", "--slow=5ms"});
  cluster.StartJob(2);  // that one has no other choice
  ASSERT_TRUE(cluster.WaitForServing(2));
  std::vector<v1::GenerateRequest> both = of_bard;
  both.insert(both.end(), of_small.begin(), of_small.end());
  std::vector<std::string> want = bards;
  want.insert(want.end(), smalls.begin(), smalls.end());
  EXPECT_EQ(TextsOf(cluster.GenerateAll(both)), want);
  EXPECT_THAT(Skein(cluster.address(), {"model", "list"}),
              AllOf(HasSubstr("bard: "), HasSubstr("small: "), HasSubstr("context 128")));

  // It goes while it answers.
  std::vector<std::string> last;
  std::thread asks([&] { last = TextsOf(cluster.GenerateAll(of_small)); });
  EXPECT_TRUE(cluster.WaitForStatus(
      [](const auto& status) { return status.running_requests() == 4; }, absl::Seconds(20)));
  EXPECT_THAT(Skein(cluster.address(), {"model", "remove", "small"}),
              HasSubstr("small is removed"));
  asks.join();
  EXPECT_EQ(last, smalls);
  EXPECT_EQ(first.Wait(absl::Seconds(20)), 0) << first.Output();
  const Answer refused = cluster.Generate(of_small.front());
  EXPECT_EQ(refused.status.error_code(), grpc::StatusCode::NOT_FOUND);

  // And comes again.
  EXPECT_THAT(Skein(cluster.address(), {"model", "add", "small=/no/such/model"}, 1),
              HasSubstr("/no/such/model"));
  Skein(cluster.address(), {"model", "add", "small=" + small, "--context-length=100"});
  cluster.StartJob(2, {"--model=small"});
  ASSERT_TRUE(cluster.WaitForServing(2));
  EXPECT_EQ(TextsOf(cluster.GenerateAll(both)), want);
}

// A job that was given a model, and has its weights, stays with it when the coordinator comes back,
// even where another one has fewer jobs now.
TEST(ModelsTest, JobsFindTheirModelsAgain) {
  const std::string small = MakeSmallModel();
  Cluster cluster({.coordinator_flags = {"--model=small=" + small}});
  Process& first = cluster.StartJob(1, {"--model=bard"});
  ASSERT_TRUE(cluster.WaitForServing(1));
  Process& second = cluster.StartJob(1);
  ASSERT_TRUE(cluster.WaitForServing(2));
  const auto requests = RequestsFor("small", 2, 8);
  const std::vector<std::string> want = TextsOf(cluster.GenerateAll(requests));
  first.Signal(SIGTERM);
  ASSERT_TRUE(first.Wait(absl::Seconds(20)).has_value());
  cluster.coordinator().Signal(SIGKILL);
  ASSERT_TRUE(cluster.coordinator().Wait(absl::Seconds(10)).has_value());
  cluster.RestartCoordinator();
  ASSERT_TRUE(cluster.WaitForServing(1)) << second.Output();
  EXPECT_EQ(cluster.ServingJob(0).model_name(), "small");
  EXPECT_EQ(TextsOf(cluster.GenerateAll(requests)), want);
}

class DrainJobTest : public ::testing::Test {
 protected:
  // Two jobs, and requests that go on for a while.
  DrainJobTest() : cluster_({.layout = "tp=2,pp=1", .worker = kFaultyWorker}) {
    for (Process*& job : jobs_) job = &cluster_.StartJob(2, {"--slow=3ms"});
    EXPECT_TRUE(cluster_.WaitForServing(2));
    id_ = cluster_.ServingJob(0).job_id();
  }
  // All answers of a load during which `change` is done.
  std::vector<std::string> During(const std::vector<v1::GenerateRequest>& requests,
                                  const std::function<void()>& change) {
    std::vector<std::string> texts;
    std::thread asks([&] { texts = TextsOf(cluster_.GenerateAll(requests)); });
    EXPECT_TRUE(cluster_.WaitForStatus(
        [&](const auto& status) {
          return status.running_requests() == static_cast<int>(requests.size());
        },
        absl::Seconds(20)));
    change();
    asks.join();
    return texts;
  }
  // The other one goes on.
  void OneHasEndedWell() {
    std::vector<int> ended;
    const absl::Time deadline = absl::Now() + absl::Seconds(10);
    while (ended.empty() && absl::Now() < deadline) {
      for (Process* const job : jobs_) {
        if (const auto status = job->Wait(absl::Milliseconds(50))) ended.push_back(*status);
      }
    }
    EXPECT_EQ(ended, std::vector<int>{0}) << jobs_[0]->Output() << jobs_[1]->Output();
  }

  const std::vector<v1::GenerateRequest> requests_ = RequestsFor("bard", 8, 60);
  Cluster cluster_;
  Process* jobs_[2] = {};
  std::string id_;
};

TEST_F(DrainJobTest, NothingIsLostAndNoAnswerChanges) {
  const std::vector<std::string> want = During(requests_, [] {});
  const std::vector<std::string> got = During(requests_, [&] {
    EXPECT_THAT(Skein(cluster_.address(), {"drain", id_}),
                HasSubstr(absl::StrCat("job ", id_, ": ended: drained")));
    // What came meanwhile went to the other one.
    EXPECT_TRUE(cluster_.Generate(requests_.front()).status.ok());
  });
  EXPECT_EQ(got, want);
  EXPECT_EQ(cluster_.Status().migrations(), 0);
  OneHasEndedWell();
}

TEST_F(DrainJobTest, WhatIsNotDoneInTimeGoesOnWithTheOtherJob) {
  const std::vector<std::string> want = During(requests_, [] {});
  const std::vector<std::string> got = During(requests_, [&] {
    EXPECT_THAT(Skein(cluster_.address(), {"drain", id_, "--timeout=30ms"}),
                HasSubstr("its timeout passed"));
  });
  EXPECT_EQ(got, want);
  EXPECT_GT(cluster_.Status().migrations(), 0);
  OneHasEndedWell();
  // The last one: status and client say so.
  const std::string last = cluster_.ServingJob(0).job_id();
  EXPECT_THAT(Skein(cluster_.address(), {"drain", last}),
              HasSubstr("the last job that serves bard"));
  EXPECT_EQ(cluster_.Generate(requests_.front()).status.error_code(),
            grpc::StatusCode::UNAVAILABLE);
  EXPECT_THAT(Skein(cluster_.address(), {"drain", "nobody"}, 1), HasSubstr("no job 'nobody'"));
}

}  // namespace
}  // namespace skein::testing
