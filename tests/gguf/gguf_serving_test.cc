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

}  // namespace
}  // namespace skein::testing
