// A mixture of experts in whole jobs: every layout, experts split and apart, gives the same tokens,
// and the status tells how evenly they were chosen.
#include <cstdint>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "base/test_util.h"
#include "tests/cluster/cluster.h"
#include "tests/golden/golden_model.h"

namespace skein::testing {
namespace {

constexpr int kExperts = 16, kLayers = 3;

std::vector<uint32_t> Answer(const std::string& layout, int ranks) {
  SCOPED_TRACE(layout);
  Cluster cluster({.model = GoldenModel("qwen3-moe"), .layout = layout});
  Process& job = cluster.StartJob(ranks);
  EXPECT_TRUE(cluster.WaitForServing(1)) << cluster.coordinator().Output();
  // Ranks say what they have loaded.
  EXPECT_EQ(job.Output().find(", experts in 2") != std::string::npos,
            layout.find("ep=2") != std::string::npos)
      << job.Output();
  EXPECT_FALSE(cluster.ServingJob(0).has_experts());
  v1::GenerateRequest request = GreedyRequest("KING.HENRY:What", 32);
  request.mutable_sampling()->set_ignore_eos(true);
  const auto answer = cluster.Generate(request);
  EXPECT_TRUE(answer.status.ok()) << answer.status.error_message();
  EXPECT_TRUE(cluster.WaitForStatus(
      [](const cluster::v1::ClusterStatus& status) { return status.jobs(0).has_experts(); },
      absl::Seconds(10)));
  const cluster::v1::ExpertLoad load = cluster.ServingJob(0).experts();
  EXPECT_GT(load.rows(), 0);
  EXPECT_TRUE(load.layer() >= 0 && load.layer() < kLayers) << load.layer();
  EXPECT_TRUE(load.expert() >= 0 && load.expert() < kExperts) << load.expert();
  // 4 of 16 for each row: none has more than four times the average, and one has more than that.
  EXPECT_TRUE(load.of_average() > 1 && load.of_average() <= 4) << load.of_average();
  return answer.tokens;
}

TEST(ExpertsTest, EveryLayoutGivesTheSameTokens) {
  const std::vector<uint32_t> whole = Answer("tp=1", 1);
  EXPECT_EQ(whole.size(), 32u);
  EXPECT_EQ(Answer("tp=2", 2), whole);
  EXPECT_EQ(Answer("tp=2,ep=2", 2), whole);
  EXPECT_EQ(Answer("tp=4,ep=2", 4), whole);
  EXPECT_EQ(Answer("pp=2", 2), whole);
}

}  // namespace
}  // namespace skein::testing
