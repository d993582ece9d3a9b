// The status of a job that serves tells what its steps take, beside what was predicted of them.
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/cluster/cluster.h"

namespace skein::testing {
namespace {

using ::testing::HasSubstr;

TEST(PredictedTest, StepsAreHeldAgainstTheirPrediction) {
  constexpr int kTokens = 900;
  Cluster cluster({.layout = "tp=2"});
  cluster.StartJob(2);
  ASSERT_TRUE(cluster.WaitForServing(1));
  EXPECT_FALSE(cluster.ServingJob(0).replicas(0).has_decode());
  absl::Duration answers;  // a token's share of them, as their client sees it
  cluster::v1::ReplicaStatus replica;
  for (int count = 1; count <= 20; ++count) {
    const absl::Time begin = absl::Now();
    ASSERT_TRUE(cluster.Generate(GreedyRequest("ROMEO:", kTokens)).status.ok());
    answers += (absl::Now() - begin) / kTokens;
    const absl::Duration token = answers / count;
    replica = cluster.ServingJob(0).replicas(0);
    if (replica.load().decode_seconds() < 1.5) continue;
    ASSERT_TRUE(cluster.WaitForStatus(
        [&](const auto& status) {
          replica = status.jobs(0).replicas(0);
          return replica.has_decode();
        },
        absl::Seconds(5)));
    const cluster::v1::DecodeComparison& decode = replica.decode();
    EXPECT_EQ(decode.rows(), 1);
    EXPECT_GT(decode.steps(), 100);
    EXPECT_GT(decode.context(), 10);
    EXPECT_LT(decode.context(), 910);
    EXPECT_LT(decode.measured_seconds(), 1.2 * absl::ToDoubleSeconds(token));
    EXPECT_GT(decode.measured_seconds(), 0.5 * absl::ToDoubleSeconds(token));
    EXPECT_GT(decode.predicted_seconds(), 0);
    EXPECT_THAT(cluster.coordinator().Output(),
                AllOf(HasSubstr("replica 0 of job "), HasSubstr(" ms for a step of 1.0 sequences "),
                      HasSubstr("; predicted were ")));
    return;
  }
  FAIL() << "its steps took " << replica.load().decode_seconds() << " s";
}

}  // namespace
}  // namespace skein::testing
