#include "model/tokenizer/gguf_tokenizer.h"

#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/test_util.h"
#include "model/format/gguf.h"

namespace skein::model {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::string ReadWhole(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream bytes;
  bytes << file.rdbuf();
  return bytes.str();
}

std::vector<int32_t> Numbers(const std::string& line) {
  std::vector<int32_t> numbers;
  std::istringstream words(line);
  for (int32_t number = 0; words >> number;) numbers.push_back(number);
  return numbers;
}

class PublishedVocabulary : public testing::TestWithParam<const char*> {};

// Texts and the ids that llama.cpp holds its own tokenizer against.
TEST_P(PublishedVocabulary, EncodesAsPublished) {
  const char* shared = std::getenv("SKEIN_SHARED");
  if (shared == nullptr) GTEST_SKIP() << "no ../shared: SKEIN_SHARED is not set";
  const std::string path =
      absl::StrCat(shared, "/data/tokenizers/ggml-vocab-", GetParam(), ".gguf");
  SKEIN_ASSERT_OK_AND_ASSIGN(const GgufMetadata metadata, ReadGgufMetadata(path));
  SKEIN_ASSERT_OK_AND_ASSIGN(const auto tokenizer, ParseGgufTokenizer(metadata));
  std::vector<std::string> texts =
      absl::StrSplit(ReadWhole(path + ".inp"), "\n__ggml_vocab_test__\n");
  if (texts.back().empty()) texts.pop_back();  // after the last separator
  std::vector<std::string> lines = absl::StrSplit(ReadWhole(path + ".out"), '\n');
  ASSERT_EQ(texts.size(), 46u);
  ASSERT_GE(lines.size(), texts.size());
  for (size_t i = 0; i < texts.size(); ++i) {
    SCOPED_TRACE(texts[i]);
    SKEIN_ASSERT_OK_AND_ASSIGN(const std::vector<int32_t> ids,
                               tokenizer->Encode(texts[i], {.add_special_tokens = false}));
    EXPECT_EQ(ids, Numbers(lines[i]));
    // What was encoded is decoded, but for the space that some put before it.
    std::string decoded;
    StreamingDetokenizer detokenizer(tokenizer.get());
    for (const int32_t id : ids) decoded += detokenizer.Push(id);
    decoded += detokenizer.Finish();
    if (decoded != texts[i]) EXPECT_EQ(decoded, " " + texts[i]);
  }
}

INSTANTIATE_TEST_SUITE_P(All, PublishedVocabulary,
                         testing::Values("deepseek-coder", "gemma-4", "gpt-2", "llama-bpe",
                                         "llama-spm", "phi-3", "qwen2", "starcoder"),
                         [](const auto& info) {
                           std::string name;
                           for (const char c : std::string(info.param)) {
                             if (std::isalnum(static_cast<unsigned char>(c))) name += c;
                           }
                           return name;
                         });

}  // namespace
}  // namespace skein::model
