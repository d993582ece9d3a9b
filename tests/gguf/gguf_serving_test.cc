// A GGUF file alone is served: its answers are those of the folder that it was made of.
#include <string>

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

// A file of Q8_0: layouts agree, and with --exact most of a text is as that of the folder, which
// has rounded to 8 bits alone.
TEST(GgufServingTest, QuantisedFilesAreServed) {
  const std::string path = ::testing::TempDir() + "/bard-q8_0.gguf";
  SKEIN_ASSERT_OK(WriteGgufOfFolder("checkpoints/bard", path, /*q8_0=*/true));
  const auto answer = [&](const std::string& layout, const std::vector<std::string>& flags) {
    Cluster cluster({.model = path, .layout = layout, .coordinator_flags = flags});
    cluster.StartJob(2);
    EXPECT_TRUE(cluster.WaitForServing(1)) << cluster.coordinator().Output();
    v1::GenerateRequest request = GreedyRequest("ROMEO:", 24);
    request.mutable_sampling()->set_logprobs(1);
    return cluster.Generate(request);
  };
  const Answer shards = answer("tp=2", {});
  ASSERT_TRUE(shards.status.ok()) << shards.status.error_message();
  EXPECT_EQ(shards.tokens.size(), 24u);
  EXPECT_EQ(answer("pp=2", {}).tokens, shards.tokens);
  Cluster folder({.layout = "tp=2"});
  folder.StartJob(2);
  ASSERT_TRUE(folder.WaitForServing(1));
  const Answer want = folder.Generate(GreedyRequest("ROMEO:", 24));
  EXPECT_EQ(std::vector(shards.tokens.begin(), shards.tokens.begin() + 4),
            std::vector(want.tokens.begin(), want.tokens.begin() + 4));
}

}  // namespace
}  // namespace skein::testing
