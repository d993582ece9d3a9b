// Every row of testdata/tokenizer_table.json and published_table.json, which the `tokenizers`
// library made.
#include <cctype>
#include <cstdint>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/test_util.h"
#include "model/tokenizer/tokenizer.h"
#include "model/tokenizer/tokenizer_json.h"

namespace skein::model {
namespace {

using ::nlohmann::json;
using ::testing::HasSubstr;

const json& Table() {
  static const json table =
      json::parse(std::ifstream("model/tokenizer/testdata/tokenizer_table.json"));
  return table;
}

// Of both tables.
const std::vector<json>& Variants() {
  static const std::vector<json> variants = [] {
    const json published =
        json::parse(std::ifstream("model/tokenizer/testdata/published_table.json"));
    std::vector<json> all = Table()["tokenizers"];
    for (const json& variant : published["tokenizers"]) {
      all.push_back(variant);
      all.back()["name"] = "published " + variant["name"].get<std::string>();
    }
    return all;
  }();
  return variants;
}

// bard's tokenizer with some values replaced, told by JSON pointers.
std::string PatchedBard(const json& patch) {
  json document = json::parse(std::ifstream("checkpoints/bard/tokenizer.json"));
  for (const auto& [pointer, value] : patch.items()) document[json::json_pointer(pointer)] = value;
  return document.dump();
}

class TokenizerTable : public testing::TestWithParam<size_t> {};

TEST_P(TokenizerTable, EncodesAndDecodesAsTheLibrary) {
  const json& variant = Variants()[GetParam()];
  SKEIN_ASSERT_OK_AND_ASSIGN(const auto tokenizer,
                             ParseTokenizerJson(PatchedBard(variant["patch"])));
  for (const json& row : variant["rows"]) {
    const auto text = row["text"].get<std::string>();
    const EncodeOptions options = {
        .add_special_tokens = row.value("add_special_tokens", false),
        .parse_special = row.value("parse_special", false),
    };
    SCOPED_TRACE(row["text"].dump());
    SKEIN_ASSERT_OK_AND_ASSIGN(const std::vector<int32_t> ids, tokenizer->Encode(text, options));
    EXPECT_EQ(ids, row["ids"].get<std::vector<int32_t>>());

    StreamingDetokenizer detokenizer(tokenizer.get());
    std::string decoded;
    for (const int32_t id : ids) decoded += detokenizer.Push(id);
    decoded += detokenizer.Finish();
    EXPECT_EQ(decoded, row.value("decoded", text));
  }
}

INSTANTIATE_TEST_SUITE_P(All, TokenizerTable, testing::Range<size_t>(0, Variants().size()),
                         [](const auto& info) {
                           const json& variant = Variants()[info.param];
                           std::string name;
                           for (const char c : variant["name"].template get<std::string>()) {
                             if (std::isalnum(static_cast<unsigned char>(c))) name += c;
                           }
                           return name;
                         });

TEST(TokenizerTableSize, BardHasFiveHundredTexts) {
  EXPECT_EQ(Table()["tokenizers"][0]["name"], "bard");
  EXPECT_GE(Table()["tokenizers"][0]["rows"].size(), 500u);
}

TEST(Tokenizer, InvalidUtf8IsRefusedWithItsOffset) {
  SKEIN_ASSERT_OK_AND_ASSIGN(const auto tokenizer, ParseTokenizerJson(PatchedBard({})));
  ASSERT_GE(Table()["invalid"].size(), 100u);
  for (const json& row : Table()["invalid"]) {
    const auto hex = row["hex"].get<std::string>();
    std::string text;
    for (size_t i = 0; i < hex.size(); i += 2) {
      text += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
    }
    for (const bool parse_special : {false, true}) {
      const std::string offset = "byte " + row["offset"].dump();
      EXPECT_THAT(tokenizer->Encode(text, {.parse_special = parse_special}),
                  StatusIs(absl::StatusCode::kInvalidArgument,
                           AllOf(HasSubstr("UTF-8"), testing::EndsWith(offset))))
          << hex;
    }
  }
}

// Merges are written "a b" in older files.
TEST(Tokenizer, MergesAsStringsAndAsPairsAreTheSame) {
  json document = json::parse(PatchedBard({}));
  ASSERT_TRUE(document["model"]["merges"][0].is_array());
  for (json& merge : document["model"]["merges"]) {
    merge = merge[0].get<std::string>() + " " + merge[1].get<std::string>();
  }
  document["model"].erase("type");  // which those files lack, too
  SKEIN_ASSERT_OK_AND_ASSIGN(const auto pairs, ParseTokenizerJson(PatchedBard({})));
  SKEIN_ASSERT_OK_AND_ASSIGN(const auto strings, ParseTokenizerJson(document.dump()));
  for (const json& row : Table()["tokenizers"][0]["rows"]) {
    const auto text = row["text"].get<std::string>();
    SKEIN_ASSERT_OK_AND_ASSIGN(const auto expected, pairs->Encode(text, {}));
    SKEIN_ASSERT_OK_AND_ASSIGN(const auto actual, strings->Encode(text, {}));
    EXPECT_EQ(actual, expected);
  }
}

TEST(Tokenizer, TokensOfBard) {
  SKEIN_ASSERT_OK_AND_ASSIGN(const auto tokenizer, LoadTokenizer("checkpoints/bard"));
  EXPECT_EQ(tokenizer->vocab_size(), 2048);
  EXPECT_TRUE(tokenizer->IsSpecial(0));
  EXPECT_EQ(tokenizer->TokenBytes(0), "");
  EXPECT_EQ(tokenizer->TokenBytes(0, /*skip_special=*/false), "<|endoftext|>");
  int special = 0;
  for (int32_t id = 0; id < tokenizer->vocab_size(); ++id) {
    special += tokenizer->IsSpecial(id);
    EXPECT_NE(tokenizer->TokenBytes(id, /*skip_special=*/false), "") << id;
  }
  EXPECT_EQ(special, 1);
  for (const int32_t id : {-1, 2048, INT32_MIN, INT32_MAX}) {
    EXPECT_EQ(tokenizer->TokenBytes(id, /*skip_special=*/false), "") << id;
    EXPECT_FALSE(tokenizer->IsSpecial(id)) << id;
  }
}

}  // namespace
}  // namespace skein::model
