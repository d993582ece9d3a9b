// Files that are broken or ask for what is not supported.
#include "model/tokenizer/tokenizer_json.h"

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "absl/strings/str_format.h"
#include "base/test_util.h"
#include "model/tokenizer/byte_alphabet.h"

namespace skein::model {
namespace {

using ::nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
constexpr auto kUnimplemented = absl::StatusCode::kUnimplemented;

// The smallest good file: the bytes, one merge, one special token.
json Good() {
  json vocab = json::object();
  for (int byte = 0; byte < 256; ++byte) vocab[SpellByte(static_cast<uint8_t>(byte))] = byte;
  vocab["ab"] = 256;
  return json{
      {"added_tokens", {{{"id", 257}, {"content", "<s>"}, {"special", true}}}},
      {"normalizer", nullptr},
      {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", true}}},
      {"post_processor",
       {{"type", "TemplateProcessing"},
        {"single", {{{"SpecialToken", {{"id", "<s>"}}}}, {{"Sequence", {{"id", "A"}}}}}},
        {"special_tokens", {{"<s>", {{"ids", {257}}}}}}}},
      {"decoder", {{"type", "ByteLevel"}}},
      {"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", {"a b"}}}},
  };
}

json Split(const json& pattern, const char* behavior) {
  return {{"type", "Split"}, {"pattern", pattern}, {"behavior", behavior}, {"invert", false}};
}

json SequenceOf(const json& members) { return {{"type", "Sequence"}, {"pretokenizers", members}}; }

const json kByteLevel = {{"type", "ByteLevel"}, {"add_prefix_space", false}};

struct Case {
  const char* pointer;  // of the field that changes
  json value;           // discarded: the field is taken out
  absl::StatusCode code;
  const char* message;
};

const json kGone = json(json::value_t::discarded);

void ExpectRefused(json document, const Case& bad) {
  const json::json_pointer pointer(bad.pointer);
  if (bad.value.is_discarded()) {
    document[pointer.parent_pointer()].erase(pointer.back());
  } else {
    document[pointer] = bad.value;
  }
  EXPECT_THAT(ParseTokenizerJson(document.dump()), StatusIs(bad.code, HasSubstr(bad.message)))
      << bad.pointer << " = " << bad.value;
}

std::vector<Case> ModelCases() {
  return {
      {"/model", kGone, kInvalid, "model: is missing"},
      {"/model", 5, kInvalid, "model: must be an object, but is number"},
      {"/model/type", "WordPiece", kUnimplemented, "model: type WordPiece"},
      {"/model/type", 7, kInvalid, "model.type: must be a string, but is number"},
      {"/model/dropout", 0.1, kUnimplemented, "model.dropout"},
      {"/model/byte_fallback", true, kUnimplemented, "model.byte_fallback"},
      {"/model/continuing_subword_prefix", "##", kUnimplemented, "continuing_subword_prefix"},
      {"/model/end_of_word_suffix", "</w>", kUnimplemented, "model.end_of_word_suffix"},
      {"/model/ignore_merges", 1, kInvalid, "model.ignore_merges: must be true or false"},
      {"/model/vocab", kGone, kInvalid, "model.vocab: is missing"},
      {"/model/vocab", json::array({"a"}), kInvalid, "model.vocab: must be an object"},
      {"/model/vocab", json::object(), kInvalid, "model: the vocabulary has no token for byte 0"},
      {"/model/vocab/x", -1, kInvalid, "model.vocab[\"x\"]: must be in [0, 4194304), but is -1"},
      {"/model/vocab/x", 1.5, kInvalid, "model.vocab[\"x\"]: must be an integer"},
      {"/model/vocab/x", "1", kInvalid, "model.vocab[\"x\"]: must be an integer"},
      {"/model/vocab/x", nullptr, kInvalid, "model.vocab[\"x\"]: must be an integer"},
      {"/model/vocab/x", 4194304, kInvalid, "model.vocab[\"x\"]: must be in"},
      {"/model/vocab/x", UINT64_MAX, kInvalid, "but is 18446744073709551615"},
      {"/model/vocab/zzz", 98, kInvalid, "model.vocab: id 98 has two tokens"},
      {"/model/vocab/", 300, kInvalid, "model.vocab: has an empty token"},
      {"/model/vocab/ab", kGone, kInvalid, "model: merge 0 (\"a\", \"b\"): the vocabulary has no"},
      {"/model/merges", kGone, kInvalid, "model.merges: is missing"},
      {"/model/merges", "a b", kInvalid, "model.merges: must be an array"},
      {"/model/merges/0", "ab", kInvalid, "model.merges[0]: must be two tokens"},
      {"/model/merges/0", "a b c", kInvalid, "model.merges[0]: must be two tokens"},
      {"/model/merges/0", "a c", kInvalid, "has no token \"ac\""},
      {"/model/merges/0", " b", kInvalid, "has no token \"\""},
      {"/model/merges/0", 3, kInvalid, "model.merges[0]: must be an array"},
      {"/model/merges/0", json::array({"a"}), kInvalid, "model.merges[0]: must be a pair"},
      {"/model/merges/0", json::array({"a", "b", "c"}), kInvalid, "merges[0]: must be a pair"},
      {"/model/merges/0", json::array({"a", 2}), kInvalid, "model.merges[0][1]: must be a string"},
  };
}

std::vector<Case> AddedTokenCases() {
  const json twice = {{{"id", 257}, {"content", "<s>"}}, {{"id", 258}, {"content", "<s>"}}};
  return {
      {"/added_tokens", 1, kInvalid, "added_tokens: must be an array"},
      {"/added_tokens/0", "x", kInvalid, "added_tokens[0]: must be an object"},
      {"/added_tokens/0/content", kGone, kInvalid, "added_tokens[0].content: is missing"},
      {"/added_tokens/0/content", "", kInvalid, "added_tokens[0]: content has 0 bytes"},
      {"/added_tokens/0/content", std::string(257, 'x'), kInvalid, "content has 257 bytes"},
      {"/added_tokens/0/id", kGone, kInvalid, "added_tokens[0].id: is missing"},
      {"/added_tokens/0/id", -1, kInvalid, "added_tokens[0].id: must be in"},
      {"/added_tokens/0/id", 2000000000, kInvalid, "added_tokens[0].id: must be in"},
      {"/added_tokens/0/id", 97, kInvalid, "added_tokens[0].id: 97 is already the id of another"},
      {"/added_tokens/0/content", "ab", kInvalid, "gives \"ab\" the id 256"},
      {"/added_tokens/0/special", "yes", kInvalid, "added_tokens[0].special: must be true or"},
      {"/added_tokens/0/single_word", 1, kInvalid, "added_tokens[0].single_word: must be true or"},
      {"/added_tokens", twice, kInvalid, "added_tokens: \"<s>\" is there twice"},
  };
}

std::vector<Case> PipelineCases() {
  const json unknown = {{"type", "BertNormalizer"}};
  const json replace = {{"type", "Replace"}, {"pattern", {{"String", ""}}}, {"content", "a"}};
  const json digits = {{"type", "Digits"}, {"individual_digits", 1}};
  const json metaspace = {{"type", "Metaspace"}, {"replacement", "_"}};
  const json scheme = {
      {"type", "Metaspace"}, {"replacement", "\u2581"}, {"prepend_scheme", "last"}};
  const json two_templates = {Good()["post_processor"], Good()["post_processor"]};
  return {
      {"/normalizer", unknown, kUnimplemented, "normalizer: type BertNormalizer is not supported"},
      {"/normalizer", replace, kInvalid, "normalizer: has an empty pattern"},
      {"/normalizer",
       {{"type", "Replace"}, {"pattern", {{"Regex", "x*"}}}, {"content", "a"}},
       kUnimplemented,
       "normalizer: has a pattern that matches nothing, too"},
      {"/pre_tokenizer", SequenceOf({Split({{"Regex", "x*"}}, "Contiguous"), kByteLevel}),
       kUnimplemented, "behavior Contiguous with a pattern that matches nothing, too"},
      {"/normalizer", {{"type", "Strip"}}, kInvalid, "normalizer.strip_left: is missing"},
      {"/normalizer", {{"type", 5}}, kInvalid, "normalizer.type: must be a string"},
      {"/normalizer", 5, kInvalid, "normalizer: must be an object"},
      {"/normalizer",
       {{"type", "Sequence"}, {"normalizers", json::array({unknown})}},
       kUnimplemented,
       "normalizer.normalizers[0]: type BertNormalizer is not supported"},
      {"/normalizer", {{"type", "Sequence"}}, kInvalid, "normalizer.normalizers: is missing"},
      {"/truncation", {{"max_length", 5}}, kUnimplemented, "truncation"},
      {"/padding", {{"strategy", "BatchLongest"}}, kUnimplemented, "padding"},
      {"/pre_tokenizer", kGone, kUnimplemented, "decoder: type ByteLevel is not supported"},
      {"/pre_tokenizer", nullptr, kUnimplemented, "decoder: type ByteLevel is not supported"},
      {"/pre_tokenizer", "ByteLevel", kInvalid, "pre_tokenizer: must be an object"},
      {"/pre_tokenizer/type", "Whitespace", kUnimplemented, "pre_tokenizer: type Whitespace"},
      {"/pre_tokenizer/add_prefix_space", kGone, kInvalid, "add_prefix_space: is missing"},
      {"/pre_tokenizer", SequenceOf({metaspace, kByteLevel}), kUnimplemented,
       "pre_tokenizer.pretokenizers[0]: replacement \"_\" is not supported"},
      {"/pre_tokenizer", SequenceOf({scheme, kByteLevel}), kInvalid,
       "pre_tokenizer.pretokenizers[0]: prepend_scheme last is none of"},
      {"/pre_tokenizer", SequenceOf({digits, kByteLevel}), kInvalid,
       "pretokenizers[0].individual_digits: must be true or false"},
      {"/pre_tokenizer", SequenceOf({{{"type", "Digits"}}, kByteLevel}), kInvalid,
       "pretokenizers[0].individual_digits: is missing"},
      {"/pre_tokenizer", SequenceOf(json::array()), kUnimplemented, "decoder: type ByteLevel"},
      {"/pre_tokenizer", SequenceOf({kByteLevel, kByteLevel}), kUnimplemented,
       "pretokenizers[1]: comes after ByteLevel"},
      {"/pre_tokenizer", SequenceOf({Split({{"Regex", "a("}}, "Isolated"), kByteLevel}), kInvalid,
       "pre_tokenizer.pretokenizers[0].pattern: regular expression does not compile"},
      {"/pre_tokenizer", SequenceOf({Split({{"Regex", "\\w+"}}, "Isolated"), kByteLevel}),
       kUnimplemented, "pretokenizers[0].pattern: \"\\w\""},
      {"/pre_tokenizer", SequenceOf({Split(json::object(), "Isolated"), kByteLevel}), kInvalid,
       "pattern.String: is missing"},
      {"/pre_tokenizer", SequenceOf({Split({{"String", "a"}}, "Merged"), kByteLevel}), kInvalid,
       "pretokenizers[0]: behavior Merged is none of"},
      {"/post_processor/type", "RobertaProcessing", kUnimplemented, "type RobertaProcessing"},
      {"/post_processor/single", kGone, kInvalid, "post_processor.single: is missing"},
      {"/post_processor/single", json::array(), kUnimplemented, "has no Sequence"},
      {"/post_processor/single/0", 1, kInvalid, "post_processor.single[0]: must be an object"},
      {"/post_processor/single/1/Sequence/id", "B", kUnimplemented, "must be A"},
      {"/post_processor/single/0", {{"Sequence", {{"id", "A"}}}}, kUnimplemented, "only once"},
      {"/post_processor/single/0/SpecialToken/id", "<x>", kInvalid,
       "post_processor.special_tokens.<x>: is missing"},
      {"/post_processor/special_tokens/<s>/ids/0", 258, kInvalid, "must be in [0, 258)"},
      {"/post_processor",
       {{"type", "Sequence"}, {"processors", two_templates}},
       kUnimplemented,
       "post_processor.processors[1]: is a second template"},
      {"/decoder", nullptr, kUnimplemented, "decoder: is null"},
      {"/decoder/type", "Metaspace", kUnimplemented, "decoder: type Metaspace"},
  };
}

// The smallest good file of characters.
json Characters() {
  json vocab = json::object();
  for (int byte = 0; byte < 256; ++byte) vocab[absl::StrFormat("<0x%02X>", byte)] = byte;
  for (const char* token : {"a", "b", "\u2581", "ab"}) vocab[token] = vocab.size();
  return json{
      {"normalizer", nullptr},
      {"pre_tokenizer", nullptr},
      {"decoder",
       {{"type", "Sequence"},
        {"decoders",
         {{{"type", "Replace"}, {"pattern", {{"String", "\u2581"}}}, {"content", " "}},
          {{"type", "ByteFallback"}},
          {{"type", "Fuse"}},
          {{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}}}}}},
      {"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", {"a b"}}, {"byte_fallback", true}}}};
}

TEST(TokenizerJson, FilesOfCharacters) {
  SKEIN_ASSERT_OK_AND_ASSIGN(const auto tokenizer, ParseTokenizerJson(Characters().dump()));
  EXPECT_EQ(*tokenizer->Encode("ab\u2581\u00e9", {}), (std::vector<int32_t>{259, 258, 0xC3, 0xA9}));
  EXPECT_EQ(tokenizer->TokenBytes(258, false), " ");
  EXPECT_EQ(tokenizer->TokenBytes(0xC3, false), "\xC3");
  const Case cases[] = {
      {"/model/unk_token", "?", kInvalid, "model: unk_token \"?\" is not in vocab"},
      {"/model/fuse_unk", 1, kInvalid, "model.fuse_unk: must be true or false"},
      {"/decoder/decoders/0/content", "_", kUnimplemented, "decoder.decoders[0]: type Replace"},
      {"/decoder/decoders/1/type", "Fuse", kUnimplemented, "without the decoder ByteFallback"},
      {"/decoder/decoders/3/content", "x", kUnimplemented, "decoder.decoders[3]: type Strip"},
  };
  for (const Case& bad : cases) {
    ExpectRefused(Characters(), bad);
  }
}

// The smallest good file of pieces and scores.
json Pieces() {
  json document = Characters();
  document["decoder"] = {{"type", "Metaspace"}};
  document["model"] = json::parse(R"({"type": "Unigram", "unk_id": 0, "vocab": [
      ["<unk>", 0], ["a", -1.5], ["<0x41>", -3], ["b", -2], ["ab", -3]]})");
  return document;
}

TEST(TokenizerJson, FilesOfPiecesAndScores) {
  SKEIN_ASSERT_OK_AND_ASSIGN(const auto tokenizer, ParseTokenizerJson(Pieces().dump()));
  EXPECT_EQ(*tokenizer->Encode("abAAb", {}), (std::vector<int32_t>{4, 0, 3}));
  // Without a decoder of bytes tokens are as they are spelled.
  EXPECT_EQ(tokenizer->TokenBytes(2, false), "<0x41>");
  const Case cases[] = {
      {"/model/vocab", 5, kInvalid, "model.vocab: must be an array"},
      {"/model/vocab/1", json::array({"a"}), kInvalid, "model.vocab[1]: must be a token and its"},
      {"/model/vocab/1", json::array({"a", "b"}), kInvalid, "model.vocab[1]: must be a token and"},
      {"/model/vocab/1/0", "", kInvalid, "model: token 1 has 0 bytes"},
      {"/model/vocab/1/0", std::string(1025, 'a'), kInvalid, "model: token 1 has 1025 bytes"},
      {"/model/unk_id", 5, kInvalid, "model.unk_id: must be in [0, 5), but is 5"},
      {"/model/unk_id", nullptr, kInvalid, "model: the vocabulary has no token for some bytes"},
      {"/model/byte_fallback", true, kUnimplemented, "without the decoder ByteFallback"},
      {"/pre_tokenizer", kByteLevel, kUnimplemented, "decoder: type Metaspace"},
  };
  for (const Case& bad : cases) {
    ExpectRefused(Pieces(), bad);
  }
  json bytes = Pieces();
  bytes["pre_tokenizer"] = kByteLevel;
  bytes["decoder"] = kByteLevel;
  EXPECT_THAT(ParseTokenizerJson(bytes.dump()),
              StatusIs(kUnimplemented, HasSubstr("model: type Unigram behind ByteLevel")));
}

// Those that are equal when they are normalised, beside text that goes on with a zero.
TEST(TokenizerJson, TheFirstOfEqualAddedTokensIsFound) {
  json document = Good();
  document["normalizer"] = {{"type", "Lowercase"}};
  document["added_tokens"] = {{{"id", 257}, {"content", "<s>"}, {"special", true}},
                              {{"id", 258}, {"content", "XY"}},
                              {{"id", 259}, {"content", "xy"}}};
  SKEIN_ASSERT_OK_AND_ASSIGN(const auto tokenizer, ParseTokenizerJson(document.dump()));
  EXPECT_EQ(*tokenizer->Encode(std::string_view("xy\0Xy", 5), {.add_special_tokens = false}),
            (std::vector<int32_t>{258, 0, 258}));
}

TEST(TokenizerJson, TheSmallestGoodFile) {
  SKEIN_ASSERT_OK_AND_ASSIGN(const auto tokenizer, ParseTokenizerJson(Good().dump()));
  EXPECT_EQ(tokenizer->vocab_size(), 258);
  EXPECT_EQ(*tokenizer->Encode("abb", {}), (std::vector<int32_t>{257, 256, 98}));
}

TEST(TokenizerJson, BadFieldsAreNamed) {
  for (const auto& cases : {ModelCases(), AddedTokenCases(), PipelineCases()}) {
    for (const Case& bad : cases) {
      ExpectRefused(Good(), bad);
    }
  }
}

TEST(TokenizerJson, TextThatIsNotADocument) {
  const std::string good = Good().dump();
  const std::string deep(1'000'000, '[');
  const struct {
    const char* name;
    std::string text;
    const char* message;
  } cases[] = {
      {"empty", "", "bad JSON at offset 0"},
      {"binary", std::string("\0\xFF\x80", 3), "bad JSON at offset 0: a zero byte"},
      {"trailing", good + "x", "bad JSON at offset"},
      {"array", "[]", "must be an object, but is array"},
      {"null", "null", "must be an object, but is null"},
      {"bad UTF-8", "{\"a\": \"\xC3(\"}", "bad JSON at offset"},
      {"lone surrogate", R"({"a": "\ud800"})", "bad JSON at offset"},
      {"huge number", R"({"a": 1e999999})", "bad JSON at offset 14"},
      {"key twice", R"({"version": 1, "version": 2})", "key 'version' appears twice"},
      {"deep", deep, "bad JSON at offset 64: nested deeper than 64"},
      {"deep and closed", deep + std::string(deep.size(), ']'), "nested deeper than 64"},
      {"deep objects",
       [] {
         std::string text;
         for (int i = 0; i < 1'000'000; ++i) text += "{\"a\":";
         return text;
       }(),
       "nested deeper than 64"},
  };
  for (const auto& [name, text, message] : cases) {
    EXPECT_THAT(ParseTokenizerJson(text),
                StatusIs(kInvalid, AllOf(HasSubstr(message), SizeIs(testing::Lt(200u)))))
        << name;
  }
}

TEST(TokenizerJson, EveryTruncationIsRefused) {
  const std::string good = Good().dump();
  for (size_t size = 0; size < good.size(); size += 7) {
    EXPECT_THAT(ParseTokenizerJson(good.substr(0, size)), StatusIs(kInvalid, HasSubstr("bad JSON")))
        << size;
  }
}

// Brackets inside of strings nest nothing.
TEST(TokenizerJson, BracketsInStrings) {
  json document = Good();
  document["added_tokens"][0]["content"] = std::string(100, '[') + "\"\\{{{";
  SKEIN_EXPECT_OK(ParseTokenizerJson(document.dump()).status());
}

class LoadTokenizerTest : public testing::Test {
 protected:
  void SetUp() override { std::filesystem::create_directories(folder_); }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  const std::string folder_ = std::string(std::getenv("TEST_TMPDIR")) + "/tokenizer";
  const std::string path_ = folder_ + "/tokenizer.json";
};

TEST_F(LoadTokenizerTest, ErrorsNameThePath) {
  EXPECT_THAT(LoadTokenizer(folder_), StatusIs(absl::StatusCode::kNotFound, HasSubstr(path_)));
  std::ofstream(path_) << "{}";
  EXPECT_THAT(LoadTokenizer(folder_), StatusIs(kInvalid, HasSubstr(path_ + ": decoder")));
  std::filesystem::resize_file(path_, (64 << 20) + 1);
  EXPECT_THAT(LoadTokenizer(folder_),
              StatusIs(kInvalid, HasSubstr("more than the 67108864 bytes")));
  std::filesystem::remove(path_);
  std::filesystem::create_directory(path_);
  EXPECT_THAT(LoadTokenizer(folder_), Not(IsOk()));
}

TEST_F(LoadTokenizerTest, ReadsAFile) {
  std::ofstream(path_) << Good();
  SKEIN_ASSERT_OK_AND_ASSIGN(const auto tokenizer, LoadTokenizer(folder_));
  EXPECT_EQ(tokenizer->vocab_size(), 258);
}

}  // namespace
}  // namespace skein::model
