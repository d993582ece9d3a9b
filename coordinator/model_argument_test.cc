#include "coordinator/model_argument.h"

#include <string>
#include <vector>

#include "base/test_util.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace skein::coordinator {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

ModelArgument Parse(const std::string& text, const ModelArgument& defaults = {}) {
  absl::StatusOr<ModelArgument> parsed = ParseModelArgument(text, defaults);
  SKEIN_EXPECT_OK(parsed.status());
  return parsed.ok() ? *parsed : ModelArgument();
}

TEST(ModelArgumentTest, NamesAndPath) {
  const ModelArgument alone = Parse("checkpoints/bard");
  EXPECT_THAT(alone.names, IsEmpty());
  EXPECT_EQ(alone.path, "checkpoints/bard");
  const ModelArgument named = Parse("chat,llama=/models/a=b");
  EXPECT_THAT(named.names, ElementsAre("chat", "llama"));
  EXPECT_EQ(named.path, "/models/a=b");
  // A path that has one of its own.
  EXPECT_EQ(Parse("/models/a=b").path, "/models/a=b");
  EXPECT_EQ(Parse("./a=b").path, "./a=b");
  EXPECT_EQ(Parse("two words").path, "two words");
}

TEST(ModelArgumentTest, ItsFlagsBeatThoseOfAll) {
  ModelArgument all;
  all.chat_template = "all.jinja";
  all.limits.max_queue = 7;
  all.limits.constraints.context_length = 100;
  const ModelArgument plain = Parse("a=/a", all);
  EXPECT_EQ(plain.chat_template, "all.jinja");
  EXPECT_EQ(plain.limits.max_queue, 7);
  EXPECT_EQ(plain.limits.constraints.context_length, 100);
  const ModelArgument own = Parse(
      "a=/a --context-length=50 --layout tp=2,pp=3 --max-queue=1 --chat-template='my file'", all);
  EXPECT_EQ(own.path, "/a");
  EXPECT_EQ(own.limits.constraints.context_length, 50);
  EXPECT_EQ(own.limits.constraints.layout.tp_size, 2);
  EXPECT_EQ(own.limits.constraints.layout.pp_size, 3);
  EXPECT_EQ(own.limits.max_queue, 1);
  EXPECT_EQ(own.chat_template, "my file");
  EXPECT_EQ(Parse("a=/a --max-num-seqs=3", all).limits.constraints.context_length, 100);
}

TEST(ModelArgumentTest, WhatIsWrongIsSaid) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"=/a", "'' is no name"},
      {"a,=/a", "'' is no name"},
      {"a=", "the path is empty"},
      {"a\n=/a", "'a\\x0a' is no name"},
      {"a=/a --listen=:1", "--listen"},
      {"a=/a --layout=tp=x", "--layout: layout \"tp=x\""},
      {"a=/a --context-length=-1", "--context-length: must be"},
      {"a=/a --max-num-seqs=9 --max-num-batched-tokens=4", "--max-num-batched-tokens"}};
  for (const auto& [text, says] : cases) {
    const absl::StatusOr<ModelArgument> parsed = ParseModelArgument(text, {});
    EXPECT_EQ(parsed.status().code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(std::string(parsed.status().message()), HasSubstr(says)) << text;
  }
}

}  // namespace
}  // namespace skein::coordinator
