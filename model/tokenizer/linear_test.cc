// What encoding costs on long texts, counted.
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "base/test_util.h"
#include "model/tokenizer/tokenizer_json.h"

namespace skein::model {
namespace {

using ::nlohmann::json;

constexpr size_t kMiB = 1 << 20;

std::string Prose(size_t bytes) {
  const std::vector<std::string> words = {
      "the",  "and",   "I",    "to",    "of",    "you",     "my",    "that", "is",        "not",
      "with", "heart", "king", "love",  "shall", "wherein", "night", "thou", "therefore", "O",
      "more", "Romeo", "'tis", "we'll", "death", "fortune", "speak", "good", "honour",    "what"};
  const std::vector<std::string> joins = {" ", " ", " ", " ", " ", ", ", ". ", "; ", "!\n", ",\n"};
  std::mt19937 random(3);
  std::string text;
  while (text.size() < bytes) {
    text += words[random() % words.size()] + joins[random() % joins.size()];
  }
  text.resize(bytes);
  return text;
}

// bard's tokenizer with another pre-tokenizer; null: its own.
std::unique_ptr<PipelineTokenizer> Bard(const json& pre_tokenizer) {
  json document = json::parse(std::ifstream("checkpoints/bard/tokenizer.json"));
  if (!pre_tokenizer.is_null()) document["pre_tokenizer"] = pre_tokenizer;
  return ParseTokenizerJson(document.dump()).value();
}

json ByteLevel() {
  return {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}};
}

json Llama3() {
  const char* pattern = R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|)"
                        R"( ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
  return {{"type", "Sequence"},
          {"pretokenizers",
           {{{"type", "Split"},
             {"pattern", {{"Regex", pattern}}},
             {"behavior", "Isolated"},
             {"invert", false}},
            ByteLevel()}}};
}

// A heap hands out each candidate once, and there is one a byte to begin with and two a merge.
void ExpectLinear(const PipelineTokenizer& tokenizer, const std::string& text) {
  PipelineTokenizer::Work work;
  SKEIN_ASSERT_OK_AND_ASSIGN(const std::vector<int32_t> ids,
                             tokenizer.Encode(text, {.add_special_tokens = false}, work));
  const auto bytes = static_cast<int64_t>(text.size());
  const int64_t merges = bytes - static_cast<int64_t>(ids.size());
  EXPECT_EQ(work.bpe.bytes, bytes);
  EXPECT_GE(work.bpe.candidates, merges);
  EXPECT_LE(work.bpe.candidates, bytes + 2 * merges);

  std::string decoded;
  for (const int32_t id : ids) decoded += tokenizer.TokenBytes(id, /*skip_special=*/true);
  EXPECT_TRUE(decoded == text);
}

TEST(Linear, MergesOnAMebibyte) {
  std::string spaced;
  while (spaced.size() < kMiB) spaced += std::string(997, ' ') + "x";
  const struct {
    const char* name;
    std::string text;
  } texts[] = {
      {"prose", Prose(kMiB)},
      {"one letter", std::string(kMiB, 'a')},
      {"a letter that merges", std::string(kMiB, 'e')},
      {"spaces", std::string(kMiB, ' ')},
      {"spaces and a letter", std::string(kMiB, ' ') + "x"},
      {"runs of spaces", spaced},
      {"newlines", std::string(kMiB, '\n')},
      {"special tokens' beginning", std::string(kMiB, '<')},
  };
  const struct {
    const char* name;
    std::unique_ptr<PipelineTokenizer> tokenizer;
  } tokenizers[] = {
      {"GPT-2's pattern", Bard(nullptr)},
      {"Llama-3's pattern", Bard(Llama3())},
      {"one pre-token", Bard(ByteLevel())},
  };
  for (const auto& [text_name, text] : texts) {
    for (const auto& [name, tokenizer] : tokenizers) {
      SCOPED_TRACE(std::string(text_name) + ", " + name);
      ExpectLinear(*tokenizer, text);
    }
  }
}

// PCRE2's own limit of backtracking stops Llama-3's pattern here.
TEST(Linear, TenMebibytesOfSpaces) {
  ExpectLinear(*Bard(Llama3()), std::string(10 * kMiB, ' '));
  ExpectLinear(*Bard(nullptr), std::string(10 * kMiB, ' ') + "x");
}

// Marks are sorted by exchanging neighbours, some of them two in one code point: texts with too
// many behind each other are refused before.
TEST(Linear, CombiningMarks) {
  json document = json::parse(std::ifstream("checkpoints/bard/tokenizer.json"));
  document["normalizer"] = {{"type", "NFC"}};
  const auto tokenizer = ParseTokenizerJson(document.dump()).value();
  for (const std::string& mark : {"\u0301", "\u0f73", "\u0f71\u0f72", "\u0344\u0323"}) {
    std::string few = "a";
    std::string many = "a";
    while (few.size() < 200) few += mark;
    while (many.size() < 10 * kMiB) many += mark;
    SKEIN_EXPECT_OK(tokenizer->Encode(few, {}).status());
    EXPECT_THAT(tokenizer->Encode(many, {}),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         ::testing::HasSubstr("more than 256 combining marks")));
  }
}

}  // namespace
}  // namespace skein::model
