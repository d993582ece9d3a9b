#include "model/tokenizer/gguf_tokenizer.h"

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "base/status_macros.h"
#include "base/test_util.h"
#include "model/format/gguf.h"
#include "model/format/gguf_bytes.h"
#include "model/format/gguf_header.h"

namespace skein::model {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

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
    // What was encoded is decoded, with the space that some put before it.
    std::string decoded;
    StreamingDetokenizer detokenizer(tokenizer.get());
    for (const int32_t id : ids) decoded += detokenizer.Push(id);
    decoded += detokenizer.Finish();
    const bool spaced = *metadata.String("tokenizer.ggml.model") == "llama" && !texts[i].empty();
    EXPECT_EQ(decoded, (spaced ? " " : "") + texts[i]);
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

// SentencePiece's, of some letters: token 3 is "\u2581", 4 to 7 "a" to "d".
GgufBytes Scored(const std::vector<std::pair<std::string, float>>& more = {}) {
  std::vector<std::string> tokens = {"<unk>", "<s>", "</s>", "\u2581", "a", "b", "c", "d"};
  std::vector<std::string> types = {LittleEndian<int32_t>(2), LittleEndian<int32_t>(3),
                                    LittleEndian<int32_t>(3)};
  std::vector<std::string> scores(tokens.size(), LittleEndian(-1000.0f));
  for (const auto& [token, score] : more) {
    tokens.push_back(token);
    scores.push_back(LittleEndian(score));
  }
  types.resize(tokens.size(), LittleEndian<int32_t>(1));
  GgufBytes bytes;
  bytes.AddString("tokenizer.ggml.model", "llama")
      .Add("tokenizer.ggml.tokens", GgufType::kArray, GgufStrings(tokens))
      .Add("tokenizer.ggml.token_type", GgufType::kArray, GgufArray(GgufType::kInt32, types))
      .Add("tokenizer.ggml.scores", GgufType::kArray, GgufArray(GgufType::kFloat32, scores))
      .AddUint32("tokenizer.ggml.unknown_token_id", 0)
      .AddUint32("tokenizer.ggml.bos_token_id", 1);
  return bytes;
}

absl::StatusOr<std::unique_ptr<PipelineTokenizer>> Parse(const GgufBytes& bytes) {
  const std::string file = bytes.Build();
  SKEIN_ASSIGN_OR_RETURN(
      const GgufHeader header,
      ParseGgufHeader({reinterpret_cast<const std::byte*>(file.data()), file.size()},
                      static_cast<int64_t>(file.size())));
  return ParseGgufTokenizer(header.metadata);
}

std::vector<int32_t> Ids(const GgufBytes& bytes, const std::string& text, bool special = false) {
  const auto tokenizer = Parse(bytes);
  SKEIN_EXPECT_OK(tokenizer.status());
  if (!tokenizer.ok()) return {};
  return *(*tokenizer)->Encode(text, {.add_special_tokens = special, .parse_special = special});
}

TEST(GgufTokenizerTest, HighestScoreFirstThenTheLeftmost) {
  // "bc" beats "ab"; of equal scores the left pair comes first, whatever the ids.
  EXPECT_THAT(Ids(Scored({{"ab", -2.0f}, {"bc", -1.0f}}), "abc"), ElementsAre(3, 4, 9));
  EXPECT_THAT(Ids(Scored({{"bc", -1.0f}, {"ab", -1.0f}}), "abc"), ElementsAre(3, 9, 6));
  EXPECT_THAT(Ids(Scored({{"bc", -1.0f}, {"ab", -1.0f}, {"cd", -1.0f}}), "abcd"),
              ElementsAre(3, 9, 10));
}

TEST(GgufTokenizerTest, SpacesAreMarkedAndOneComesBefore) {
  EXPECT_THAT(Ids(Scored(), "a b"), ElementsAre(3, 4, 3, 5));
  // After a special token, too.
  EXPECT_THAT(Ids(Scored(), "a</s>b", true), ElementsAre(1, 3, 4, 2, 3, 5));
  GgufBytes none = Scored();
  none.Add("tokenizer.ggml.add_space_prefix", GgufType::kBool, std::string(1, '\0'));
  EXPECT_THAT(Ids(none, "a b"), ElementsAre(4, 3, 5));
  GgufBytes no_bos = Scored();
  no_bos.Add("tokenizer.ggml.add_bos_token", GgufType::kBool, std::string(1, '\0'));
  EXPECT_THAT(Ids(no_bos, "a", true), ElementsAre(3, 4));
}

TEST(GgufTokenizerTest, WhatNoTokenStandsForIsUnknown) {
  EXPECT_THAT(Ids(Scored(), "az"), ElementsAre(3, 4, 0));
  // A vocabulary without a single character.
  GgufBytes bytes;
  bytes.AddString("tokenizer.ggml.model", "llama")
      .Add("tokenizer.ggml.tokens", GgufType::kArray, GgufStrings({"<unk>"}))
      .Add("tokenizer.ggml.token_type", GgufType::kArray,
           GgufArray(GgufType::kInt32, {LittleEndian<int32_t>(2)}))
      .Add("tokenizer.ggml.scores", GgufType::kArray,
           GgufArray(GgufType::kFloat32, {LittleEndian(0.0f)}))
      .AddUint32("tokenizer.ggml.unknown_token_id", 0);
  EXPECT_THAT(Ids(bytes, "a"), ElementsAre(0, 0));
}

TEST(GgufTokenizerTest, BytesStandForWhatNoTokenDoes) {
  std::vector<std::string> tokens = {"a"};
  std::vector<std::string> types = {LittleEndian<int32_t>(1)};
  for (int byte = 0; byte < 256; ++byte) {
    tokens.push_back(absl::StrFormat("<0x%02X>", byte));
    types.push_back(LittleEndian<int32_t>(6));
  }
  GgufBytes bytes;
  bytes.AddString("tokenizer.ggml.model", "llama")
      .Add("tokenizer.ggml.tokens", GgufType::kArray, GgufStrings(tokens))
      .Add("tokenizer.ggml.token_type", GgufType::kArray, GgufArray(GgufType::kInt32, types))
      .Add("tokenizer.ggml.scores", GgufType::kArray,
           GgufArray(GgufType::kFloat32,
                     std::vector<std::string>(tokens.size(), LittleEndian(0.0f))))
      .Add("tokenizer.ggml.add_space_prefix", GgufType::kBool, std::string(1, '\0'));
  EXPECT_THAT(Ids(bytes, "a\u00E9"), ElementsAre(0, 1 + 0xC3, 1 + 0xA9));
  // A character whose bytes come one by one is shown when it is whole.
  SKEIN_ASSERT_OK_AND_ASSIGN(const auto tokenizer, Parse(bytes));
  StreamingDetokenizer detokenizer(tokenizer.get());
  EXPECT_EQ(detokenizer.Push(1 + 0xC3), "");
  EXPECT_EQ(detokenizer.Push(1 + 0xA9), "\u00E9");
}

TEST(GgufTokenizerTest, WrongOnesAreRefusedByKey) {
  const auto said = [](const GgufBytes& bytes) { return Parse(bytes).status().ToString(); };
  EXPECT_THAT(said(GgufBytes()), HasSubstr("'tokenizer.ggml.model'"));
  EXPECT_THAT(said(GgufBytes().AddString("tokenizer.ggml.model", "t5")),
              AllOf(HasSubstr("UNIMPLEMENTED"), HasSubstr("'t5'")));
  EXPECT_THAT(said(Scored({{"ab", NAN}})), HasSubstr("scores': the score of token 8 is no number"));
  EXPECT_THAT(said(GgufBytes()
                       .AddString("tokenizer.ggml.model", "gpt2")
                       .Add("tokenizer.ggml.tokens", GgufType::kArray, GgufStrings({"a"}))),
              HasSubstr("'tokenizer.ggml.pre'"));
  EXPECT_THAT(said(GgufBytes()
                       .AddString("tokenizer.ggml.model", "gpt2")
                       .AddString("tokenizer.ggml.pre", "bloom")
                       .Add("tokenizer.ggml.tokens", GgufType::kArray, GgufStrings({"a"}))),
              AllOf(HasSubstr("UNIMPLEMENTED"), HasSubstr("'bloom'"), HasSubstr("qwen2")));
  EXPECT_THAT(said(GgufBytes()
                       .AddString("tokenizer.ggml.model", "llama")
                       .Add("tokenizer.ggml.tokens", GgufType::kArray, GgufStrings({"a"}))
                       .Add("tokenizer.ggml.token_type", GgufType::kArray,
                            GgufArray(GgufType::kInt32, {LittleEndian<int32_t>(7)}))),
              HasSubstr("has 7 for token 0"));
  EXPECT_THAT(said(GgufBytes()
                       .AddString("tokenizer.ggml.model", "llama")
                       .Add("tokenizer.ggml.tokens", GgufType::kArray, GgufStrings({"a"}))),
              HasSubstr("no token for some bytes"));
}

}  // namespace
}  // namespace skein::model
