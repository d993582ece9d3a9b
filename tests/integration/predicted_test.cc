// The status of a job that serves tells what its steps take, beside what was predicted of them.
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

}  // namespace
}  // namespace skein::testing
