// A GGUF file alone is served: its answers are those of the folder that it was made of.
#include <algorithm>
#include <string>
#include <utility>

#include "absl/time/time.h"
#include "base/test_util.h"
#include "tests/cluster/cluster.h"
#include "tests/gguf/gguf_of_folder.h"

namespace skein::testing {
namespace {

TEST(GgufServingTest, AnswersAreTheFolders) {
  const std::string path = ::testing::TempDir() + "/bard.gguf";
  SKEIN_ASSERT_OK(WriteGgufOfFolder("checkpoints/bard", path));
  Cluster folder({.layout = "tp=2"});
  folder.StartJob(2);
  ASSERT_TRUE(folder.WaitForServing(1));
  Cluster file({.model = path, .layout = "tp=2"});
  file.StartJob(2);
  ASSERT_TRUE(file.WaitForServing(1)) << file.coordinator().Output();
  for (const char* prompt : {"ROMEO:", "KING HENRY VI:\nWhat"}) {
    const Answer want = folder.Generate(GreedyRequest(prompt, 24));
    const Answer got = file.Generate(GreedyRequest(prompt, 24));
    ASSERT_TRUE(got.status.ok()) << got.status.error_message();
    EXPECT_EQ(got.tokens.size(), 24u);
    EXPECT_EQ(got.tokens, want.tokens);
    EXPECT_EQ(got.text, want.text);
  }
}

// A file of Q8_0: layouts agree, and begin as the folder does. What --exact changes is seen in
// long answers of the same draws.
TEST(GgufServingTest, QuantisedFilesAreServed) {
  const std::string path = ::testing::TempDir() + "/bard-q8_0.gguf";
  SKEIN_ASSERT_OK(WriteGgufOfFolder("checkpoints/bard", path, /*q8_0=*/true));
  v1::GenerateRequest drawn = GreedyRequest("ROMEO:", 300);
  drawn.mutable_sampling()->set_temperature(1);
  drawn.mutable_sampling()->set_seed(5);
  // Tokens of a greedy answer, and of one that is drawn.
  const auto answers = [&](const Cluster::Options& options) {
    Cluster cluster(options);
    cluster.StartJob(2);
    EXPECT_TRUE(cluster.WaitForServing(1)) << cluster.coordinator().Output();
    const Answer greedy = cluster.Generate(GreedyRequest("ROMEO:", 24));
    EXPECT_TRUE(greedy.status.ok()) << greedy.status.error_message();
    EXPECT_EQ(greedy.tokens.size(), 24u);
    const Answer other = cluster.Generate(drawn);
    EXPECT_TRUE(other.status.ok()) << other.status.error_message();
    return std::pair(greedy.tokens, other.tokens);
  };
  const auto shards = answers({.model = path, .layout = "tp=2"});
  EXPECT_EQ(answers({.model = path, .layout = "pp=2"}), shards);
  const auto exact = answers({.model = path, .layout = "tp=2", .coordinator_flags = {"--exact"}});
  EXPECT_NE(exact.second, shards.second);
  const auto folder = answers({.layout = "tp=2"});
  for (const auto& [greedy, other] : {shards, exact}) {
    ASSERT_EQ(greedy.size(), folder.first.size());
    EXPECT_TRUE(std::equal(greedy.begin(), greedy.begin() + 4, folder.first.begin()));
  }
}

}  // namespace
}  // namespace skein::testing
