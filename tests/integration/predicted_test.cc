// The status of a job that serves tells what its steps take, beside what was predicted of them.
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/cluster/cluster.h"
#include "tests/cluster/process.h"

namespace skein::testing {
namespace {

using ::testing::ContainsRegex;

TEST(PredictedTest, StepsAreHeldAgainstTheirPrediction) {
  Cluster cluster({.layout = "tp=2"});
  cluster.StartJob(2);
  ASSERT_TRUE(cluster.WaitForServing(1));
  cluster::v1::ReplicaStatus replica = cluster.ServingJob(0).replicas(0);
  EXPECT_FALSE(replica.has_decode());
  for (int i = 0; i < 20 && replica.load().decode_seconds() < 2; ++i) {
    ASSERT_TRUE(cluster.Generate(GreedyRequest("ROMEO:", 900)).status.ok());
    replica = cluster.ServingJob(0).replicas(0);
  }
  ASSERT_TRUE(cluster.WaitForStatus(
      [&](const auto& status) {
        replica = status.jobs(0).replicas(0);
        return replica.has_decode();
      },
      absl::Seconds(10)))
      << replica.load().decode_seconds();
  const cluster::v1::DecodeComparison& decode = replica.decode();
  EXPECT_EQ(decode.rows(), 1);
  EXPECT_GT(decode.steps(), 1);
  EXPECT_GT(decode.context(), 10);
  EXPECT_LT(decode.context(), 910);
  const double mean =
      replica.load().decode_seconds() / static_cast<double>(replica.load().decode_steps());
  EXPECT_LT(decode.measured_seconds(), 3 * mean);
  EXPECT_GT(decode.measured_seconds(), mean / 3);
  EXPECT_GT(decode.predicted_seconds(), 0);
  EXPECT_TRUE(cluster.coordinator().WaitForOutput("; predicted were ", absl::Seconds(5)));
  EXPECT_THAT(cluster.coordinator().Output(),
              ContainsRegex("replica 0 of job .* ms for a step of 1.0 sequences at "));

  Process status(
      {.name = "status",
       .argv = {FindProgram("client/skein"), "status", "--coordinator=" + cluster.address()}});
  ASSERT_EQ(status.Wait(absl::Seconds(10)), 0);
  EXPECT_THAT(status.Output(),
              ContainsRegex("\n    a decode step: [0-9.e-]+ ms, of 1.0 sequences at [0-9]+ tokens; "
                            "predicted: [0-9.e-]+ ms \\([+-][0-9]+%\\)\n"));
}

// A job that computes prompts in every step is held against its prediction as well.
TEST(PredictedTest, StepsWithPromptsAreHeldAgainstTheirPrediction) {
  Cluster cluster({.layout = "tp=2"});
  cluster.StartJob(2);
  ASSERT_TRUE(cluster.WaitForServing(1));
  cluster::v1::ReplicaStatus replica = cluster.ServingJob(0).replicas(0);
  for (int i = 0; i < 500 && replica.load().prompt_steps().seconds() < 1.5; ++i) {
    // None begins as another did.
    const std::string prompt = absl::StrCat(i, std::string(600, 'a' + i % 26));
    ASSERT_TRUE(cluster.Generate(GreedyRequest(prompt, 1)).status.ok());
    replica = cluster.ServingJob(0).replicas(0);
  }
  ASSERT_TRUE(cluster.WaitForStatus(
      [&](const auto& status) {
        replica = status.jobs(0).replicas(0);
        return replica.has_prompt();
      },
      absl::Seconds(10)))
      << replica.load().prompt_steps().seconds();
  const cluster::v1::PromptComparison& prompt = replica.prompt();
  EXPECT_GT(prompt.rows(), 100);
  EXPECT_EQ(prompt.decodes(), 0);
  const cluster::v1::PromptSteps& steps = replica.load().prompt_steps();
  EXPECT_GT(steps.behind_nothing(), 0);
  EXPECT_LT(steps.behind_nothing(), steps.steps());  // prompts are longer than a step
  const double mean = steps.seconds() / static_cast<double>(steps.steps());
  EXPECT_LT(prompt.measured_seconds(), 3 * mean);
  EXPECT_GT(prompt.measured_seconds(), mean / 3);
  EXPECT_GT(prompt.predicted_seconds(), 0);
  EXPECT_FALSE(replica.has_decode());

  Process status(
      {.name = "status",
       .argv = {FindProgram("client/skein"), "status", "--coordinator=" + cluster.address()}});
  ASSERT_EQ(status.Wait(absl::Seconds(10)), 0);
  EXPECT_THAT(status.Output(),
              ContainsRegex("\n    a step with prompts: [0-9.e-]+ ms, of [0-9.]+ tokens of these "
                            "beside 0.0 sequences; predicted: [0-9.e-]+ ms \\([+-][0-9]+%\\)\n"));
}

}  // namespace
}  // namespace skein::testing
