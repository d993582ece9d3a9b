// A model whose layers all have a sliding window, in whole jobs: its texts may be longer than the
// KV cache, whose pages go round, and no token depends on it.
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/test_util.h"
#include "tests/cluster/cluster.h"
#include "tests/golden/golden_model.h"

namespace skein::testing {
namespace {

// A window of 48 and steps of 64 rows: 8 pages of 16 tokens hold what a sequence needs at once.
constexpr int kContext = 512, kPages = 10;
constexpr int kPageBytes = 3 * 16 * 2 * 2 * 16 * 4;  // 3 layers, 2 KV heads of 16, in floats

std::string Prompt() {
  std::string prompt;
  for (int i = 0; prompt.size() < 400; ++i) absl::StrAppend(&prompt, "verse ", i * i, ". ");
  prompt.resize(400);
  return prompt;
}

std::vector<uint32_t> Answer(const std::vector<std::string>& flags, bool few_pages) {
  Cluster cluster({.model = GoldenModel("mistral"), .layout = "tp=2", .coordinator_flags = flags});
  cluster.StartJob(2);
  EXPECT_TRUE(cluster.WaitForServing(1)) << cluster.coordinator().Output();
  v1::GenerateRequest request = GreedyRequest(Prompt(), 100);
  request.mutable_sampling()->set_ignore_eos(true);
  const auto answer = cluster.Generate(request);
  EXPECT_TRUE(answer.status.ok()) << answer.status.error_message();
  EXPECT_EQ(answer.tokens.size(), 100u);
  cluster::v1::ReplicaLoad load;
  EXPECT_TRUE(cluster.WaitForStatus(
      [&](const cluster::v1::ClusterStatus& status) {
        load = status.jobs(0).replicas(0).load();
        return load.running() == 0;
      },
      absl::Seconds(10)));
  EXPECT_EQ(load.total_pages() == kPages, few_pages) << load.total_pages();
  EXPECT_EQ(load.used_pages(), 0);

  // The prompt is found as long as its last window has not been written over.
  const auto again = cluster.Generate(request);
  EXPECT_TRUE(again.status.ok()) << again.status.error_message();
  EXPECT_EQ(again.tokens, answer.tokens);
  EXPECT_TRUE(cluster.WaitForStatus(
      [&](const cluster::v1::ClusterStatus& status) {
        load = status.jobs(0).replicas(0).load();
        return load.prompt_tokens() == 2 * 400;
      },
      absl::Seconds(10)));
  EXPECT_EQ(load.cached_tokens(), few_pages ? 0 : 399 / 16 * 16);
  return answer.tokens;
}

TEST(WindowsTest, TextsLongerThanTheCacheAreServed) {
  ASSERT_LT(kPages * 16, kContext);
  const std::vector<uint32_t> wide = Answer({}, /*few_pages=*/false);
  const std::vector<uint32_t> narrow =
      Answer({absl::StrCat("--kv-memory=", kPages * kPageBytes / 2, "B"),
              "--max-num-batched-tokens=64", "--max-num-seqs=4"},
             /*few_pages=*/true);
  EXPECT_EQ(narrow, wide);
}

}  // namespace
}  // namespace skein::testing
