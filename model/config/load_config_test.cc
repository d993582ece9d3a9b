#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/test_util.h"
#include "model/config/model_config.h"

namespace skein::model {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// A fresh folder with these files.
std::string Folder(const std::vector<std::pair<std::string, std::string>>& files) {
  static int count = 0;
  const std::string folder = testing::TempDir() + "/folder" + std::to_string(count++);
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  for (const auto& [name, text] : files) std::ofstream(folder + "/" + name) << text;
  return folder;
}

TEST(LoadConfigTest, ErrorsNameThePath) {
  EXPECT_THAT(LoadModelConfig("/nonexistent"),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("/nonexistent/config.json")));
  const std::string folder =
      Folder({{"config.json", "{}"}, {"generation_config.json", R"({"top_p": 3})"}});
  EXPECT_THAT(LoadModelConfig(folder),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr(folder + "/config.json"), HasSubstr("architectures"))));
  EXPECT_THAT(LoadGenerationDefaults(folder),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr(folder + "/generation_config.json"), HasSubstr("top_p"))));
}

TEST(LoadConfigTest, GenerationConfigMayBeMissing) {
  SKEIN_ASSERT_OK_AND_ASSIGN(GenerationDefaults none, LoadGenerationDefaults(Folder({})));
  EXPECT_EQ(none, GenerationDefaults{});
  SKEIN_ASSERT_OK_AND_ASSIGN(
      GenerationDefaults some,
      LoadGenerationDefaults(Folder({{"generation_config.json", R"({"top_k": 7})"}})));
  EXPECT_EQ(some.top_k, 7);
}

TEST(LoadConfigTest, ChatTemplateFromEitherPlace) {
  const struct {
    std::vector<std::pair<std::string, std::string>> files;
    std::optional<std::string> expected;
  } kCases[] = {
      {{}, std::nullopt},
      {{{"tokenizer_config.json", "{}"}}, std::nullopt},
      {{{"tokenizer_config.json", R"({"chat_template": null})"}}, std::nullopt},
      {{{"tokenizer_config.json", R"({"chat_template": "{{ a }}"})"}}, "{{ a }}"},
      {{{"chat_template.jinja", "{{ b }}\n"}}, "{{ b }}\n"},
      {{{"chat_template.jinja", "b"}, {"tokenizer_config.json", R"({"chat_template": "a"})"}}, "b"},
      {{{"tokenizer_config.json",
         R"({"chat_template": [{"name": "tool_use", "template": "t"},
                               {"name": "default", "template": "d"}]})"}},
       "d"},
  };
  for (const auto& test : kCases) {
    SKEIN_ASSERT_OK_AND_ASSIGN(std::optional<std::string> actual,
                               LoadChatTemplate(Folder(test.files)));
    EXPECT_EQ(actual, test.expected);
  }
  for (const char* bad : {"[]", "{", R"({"chat_template": 3})", R"({"chat_template": [3]})",
                          R"({"chat_template": [{"name": "default"}]})",
                          R"({"chat_template": [{"name": "rag", "template": "r"}]})"}) {
    EXPECT_THAT(LoadChatTemplate(Folder({{"tokenizer_config.json", bad}})),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("tokenizer_config.json")));
  }
}

}  // namespace
}  // namespace skein::model
