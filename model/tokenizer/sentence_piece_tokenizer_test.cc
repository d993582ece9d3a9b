// Every row of testdata/sentence_piece_table.json, which the `sentencepiece` library made, and what
// is refused.
#include "model/tokenizer/sentence_piece_tokenizer.h"

#include <unistd.h>

#include <bit>
#include <cctype>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/test_util.h"

namespace skein::model {
namespace {

using ::nlohmann::json;
using ::testing::HasSubstr;

constexpr absl::StatusCode kInvalid = absl::StatusCode::kInvalidArgument;
constexpr absl::StatusCode kUnimplemented = absl::StatusCode::kUnimplemented;

const json& Table() {
  static const json table =
      json::parse(std::ifstream("model/tokenizer/testdata/sentence_piece_table.json"));
  return table;
}

std::string ModelOf(const json& entry) {
  std::string bytes;
  EXPECT_TRUE(absl::Base64Unescape(entry["model"].get<std::string>(), &bytes));
  return bytes;
}

std::string Decode(const Tokenizer& tokenizer, const std::vector<int32_t>& ids) {
  StreamingDetokenizer detokenizer(&tokenizer);
  std::string text;
  for (const int32_t id : ids) text += detokenizer.Push(id);
  return text + detokenizer.Finish();
}

class SentencePieceTable : public testing::TestWithParam<size_t> {};

TEST_P(SentencePieceTable, EncodesAndDecodesAsTheLibrary) {
  const json& entry = Table()[GetParam()];
  SKEIN_ASSERT_OK_AND_ASSIGN(const auto tokenizer, ParseSentencePieceTokenizer(ModelOf(entry), {}));
  ASSERT_GE(entry["rows"].size(), 150u);
  for (const json& row : entry["rows"]) {
    const auto text = row["text"].get<std::string>();
    SCOPED_TRACE(row["text"].dump());
    SKEIN_ASSERT_OK_AND_ASSIGN(const std::vector<int32_t> ids,
                               tokenizer->Encode(text, {.add_special_tokens = false}));
    EXPECT_EQ(ids, row["ids"].get<std::vector<int32_t>>());
    if (row.contains("decoded")) {
      EXPECT_EQ(Decode(*tokenizer, ids), row["decoded"].get<std::string>());
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, SentencePieceTable, testing::Range<size_t>(0, Table().size()),
                         [](const auto& info) {
                           std::string name;
                           for (const char c :
                                Table()[info.param]["name"].template get<std::string>()) {
                             if (std::isalnum(static_cast<unsigned char>(c))) name += c;
                           }
                           return name;
                         });

// The message's fields, one by one.
std::string Varint(uint64_t value) {
  std::string bytes;
  for (; value >= 0x80; value >>= 7) bytes += static_cast<char>(0x80 | (value & 0x7F));
  return bytes + static_cast<char>(value);
}
std::string Number(int field, uint64_t value) {
  return Varint(static_cast<uint64_t>(field) << 3) + Varint(value);
}
std::string Bytes(int field, const std::string& bytes) {
  return Varint(static_cast<uint64_t>(field) << 3 | 2) + Varint(bytes.size()) + bytes;
}
std::string Piece(const std::string& text, float score, int type) {
  std::string bits;
  const auto number = std::bit_cast<uint32_t>(score);
  for (int i = 0; i < 4; ++i) bits += static_cast<char>(number >> (8 * i));
  return Bytes(1,
               Bytes(1, text) + Varint(2 << 3 | 5) + bits + Number(3, static_cast<uint64_t>(type)));
}

constexpr int kUnigram = 1;
constexpr int kBpe = 2;
std::string Trainer(int algorithm, const std::string& more = "") {
  return Bytes(2, Number(3, static_cast<uint64_t>(algorithm)) + more);
}
const std::string& Pieces() {
  static const std::string pieces = Piece("<unk>", 0, 2) + Piece("<s>", 0, 3) +
                                    Piece("</s>", 0, 3) + Piece("a", -1, 1) + Piece("b", -2, 1) +
                                    Piece("ab", -2.5, 1);
  return pieces;
}

TEST(SentencePieceTokenizer, AffixesAndSpecialTokens) {
  const std::string model = Pieces() + Trainer(kBpe) + Bytes(3, Number(3, 0));
  SKEIN_ASSERT_OK_AND_ASSIGN(const auto tokenizer, ParseSentencePieceTokenizer(model, {}));
  EXPECT_EQ(tokenizer->vocab_size(), 6);
  EXPECT_EQ(*tokenizer->Encode("ab", {}), (std::vector<int32_t>{1, 5}));
  EXPECT_EQ(*tokenizer->Encode("a</s>b", {.add_special_tokens = false, .parse_special = true}),
            (std::vector<int32_t>{3, 2, 4}));
  EXPECT_EQ(*tokenizer->Encode("a</s>b", {.add_special_tokens = false}),
            (std::vector<int32_t>{3, 0, 4}));
  for (const int32_t id : {0, 1, 2}) EXPECT_TRUE(tokenizer->IsSpecial(id)) << id;
  EXPECT_FALSE(tokenizer->IsSpecial(3));

  TokenizerConfig config;
  config.add_bos_token = false;
  config.add_eos_token = true;
  config.added_tokens = {{.content = "<x>", .id = 8, .special = true},
                         {.content = "ba", .id = 6, .normalized = false}};
  SKEIN_ASSERT_OK_AND_ASSIGN(const auto added, ParseSentencePieceTokenizer(model, config));
  EXPECT_EQ(added->vocab_size(), 9);
  EXPECT_EQ(*added->Encode("aba<x>", {.parse_special = true}), (std::vector<int32_t>{3, 6, 8, 2}));
  EXPECT_EQ(added->TokenBytes(8, /*skip_special=*/false), "<x>");
  EXPECT_EQ(added->TokenBytes(7, /*skip_special=*/false), "");
}

TEST(SentencePieceTokenizer, WhatIsRefused) {
  struct Case {
    std::string model;
    absl::StatusCode code;
    std::string message;
  };
  const std::string good = Pieces() + Trainer(kBpe);
  std::string offset_table("\x08\0\0\0", 4);
  const Case cases[] = {
      {"", kInvalid, "no pieces"},
      {"\x0a", kInvalid, "its list of fields is cut off or broken"},
      {good.substr(0, good.size() - 1), kInvalid, "its list of fields is cut off"},
      {good + std::string(1, '\0'), kInvalid, "its list of fields"},
      {good + Bytes(1, "\x0a\x05x"), kInvalid, "its piece 6 is cut off"},
      {good + Bytes(2, "\x18"), kInvalid, "its trainer_spec is cut off"},
      {good + Bytes(3, "\x12\x05"), kInvalid, "its normalizer_spec is cut off"},
      {good + Bytes(5, "\x12\x05"), kInvalid, "its denormalizer_spec is cut off"},
      {good + Piece("x", 0, 7), kInvalid, "piece 6 has type 7; 1 to 6 are known"},
      {good + Piece("x", 0, 5), kUnimplemented, "piece 6, which is unused, is not supported"},
      {good + Piece("", 0, 1), kInvalid, "piece 6 has 0 bytes"},
      {good + Piece(std::string(1025, 'x'), 0, 1), kInvalid, "piece 6 has 1025 bytes"},
      {good + Piece("\xA9", 0, 3), kInvalid, "piece 6 is not UTF-8"},
      {good + Piece("x", 0, 2), kInvalid, "pieces 0 and 6 are both unknown"},
      {Piece("x", 0, 1) + Trainer(kBpe), kInvalid, "has no unknown piece"},
      {good + Piece("x", NAN, 1), kInvalid, "the score of token 6 is no number"},
      {Pieces() + Piece("x", NAN, 1) + Trainer(kUnigram), kInvalid, "token 6 has no score"},
      {Pieces() + Trainer(3), kUnimplemented, "trainer_spec.model_type 3"},
      {Pieces() + Trainer(kBpe, Number(24, 1)), kUnimplemented, "treat_whitespace_as_suffix"},
      {Pieces() + Trainer(kBpe, Number(35, 1)), kInvalid, "but some bytes have no piece"},
      {Pieces() + Piece("x", 0, 6) + Trainer(kBpe, Number(35, 1)), kInvalid, "piece 6 is 'x'"},
      {good + Piece(std::string(129, 'x'), 0, 1), kUnimplemented, "piece 6 of 129 bytes"},
      {good + Bytes(3, Number(5, 0)), kUnimplemented, "escape_whitespaces false"},
      {good + Bytes(5, Bytes(2, "x")), kUnimplemented, "denormalizer_spec"},
      {good + Bytes(3, Bytes(2, "xyz")), kInvalid, "precompiled_charsmap has 3 bytes"},
      {good + Bytes(3, Bytes(2, std::string("\x04\0\0\0\0\0\0\0\xA9", 9))), kInvalid,
       "precompiled_charsmap has texts that are not UTF-8"},
      {good + Bytes(3, Bytes(2, offset_table)), kInvalid,
       "precompiled_charsmap has 4 bytes, but a"},
      {"IQ== 0\nIg== 1\n", kUnimplemented, "is a vocabulary of tiktoken"},
  };
  for (const Case& bad : cases) {
    EXPECT_THAT(ParseSentencePieceTokenizer(bad.model, {}),
                StatusIs(bad.code, HasSubstr(bad.message)));
  }
}

// A trie that points out of itself matches nothing, and reads nothing beyond it.
TEST(SentencePieceTokenizer, BrokenMapsOfReplacements) {
  const auto unit = [](uint32_t value) {
    return std::string(reinterpret_cast<const char*>(&value), sizeof(value));
  };
  const auto with_map = [&](const std::string& units, const std::string& texts) {
    const std::string map = unit(static_cast<uint32_t>(units.size())) + units + texts;
    return ParseSentencePieceTokenizer(Pieces() + Trainer(kBpe) + Bytes(3, Bytes(2, map)), {});
  };
  // A trie of one byte and one value.
  const auto units_of = [&](uint8_t label, uint32_t value) {
    std::string units(4 * 256, '\0');
    units.replace(4 * label, 4, unit(1u << 10 | 0x100 | label));
    units.replace(4 * (label ^ 1u), 4, unit(0x80000000 | value));
    return units;
  };
  const EncodeOptions plain = {.add_special_tokens = false};
  SKEIN_ASSERT_OK_AND_ASSIGN(const auto good, with_map(units_of('x', 0), "b"));
  EXPECT_EQ(*good->Encode("bx", plain), (std::vector<int32_t>{0, 4, 4}));
  // The first byte of a character is no character.
  SKEIN_ASSERT_OK_AND_ASSIGN(const auto half, with_map(units_of(0xC3, 0), "b"));
  EXPECT_EQ(*half->Encode("b\xC3\xA9", plain), (std::vector<int32_t>{0, 4, 0}));
  // Nor is a text that begins inside of one, or that is too long.
  SKEIN_ASSERT_OK_AND_ASSIGN(const auto inside, with_map(units_of('x', 1), "\xC3\xA9"));
  EXPECT_EQ(*inside->Encode("bx", plain), (std::vector<int32_t>{0, 4, 0}));
  SKEIN_ASSERT_OK_AND_ASSIGN(const auto endless,
                             with_map(units_of('x', 0), std::string(1 << 20, 'b')));
  EXPECT_EQ(*endless->Encode("bx", plain), (std::vector<int32_t>{0, 4, 0}));
  // A node that is its own child is not followed to the end of a long text from each byte.
  std::string loop(4 * 256, '\0');
  loop.replace(0, 4, unit('x' << 10));
  loop.replace(4, 4, unit(0));
  loop.replace(0, 4, unit(0));
  loop.replace(4 * 'x', 4, unit(static_cast<uint32_t>('x') << 10 | 'x'));
  SKEIN_ASSERT_OK_AND_ASSIGN(const auto looping, with_map(loop, "b"));
  const absl::Time begin = absl::Now();
  SKEIN_EXPECT_OK(looping->Encode(std::string(4 << 20, 'x'), plain));
  EXPECT_LT(absl::Now() - begin, absl::Seconds(60));
  for (const uint32_t bits :
       {0u, 0x100u, 0xFFFFFFFFu, 0x7FFFFFFFu, 0x61u << 10, 1u << 10 | 0x300u}) {
    std::string map("\x08\0\0\0", 4);
    for (int i = 0; i < 2; ++i) {
      map += unit(bits);
    }
    SKEIN_ASSERT_OK_AND_ASSIGN(
        const auto tokenizer,
        ParseSentencePieceTokenizer(Pieces() + Trainer(kBpe) + Bytes(3, Bytes(2, map)), {}));
    SKEIN_EXPECT_OK(tokenizer->Encode("a\xC3\xA9 b\x01", {}));
  }
}

// Pieces of text that begin with a mark, and without.
std::string Marked() {
  return Pieces() + Piece("\u2581", -9, 1) + Piece("\u2581a", -0.5, 1) + Trainer(kBpe) +
         Bytes(3, Number(3, 1));
}

// As LlamaTokenizer of transformers 5.24 encodes with these settings.
TEST(SentencePieceTokenizer, PrefixesAsTheConfigurationSays) {
  const auto ids = [](const TokenizerConfig& config) {
    const auto tokenizer = ParseSentencePieceTokenizer(Marked(), config);
    SKEIN_EXPECT_OK(tokenizer);
    return *(*tokenizer)->Encode("a</s>a", {.parse_special = true});
  };
  TokenizerConfig config;
  EXPECT_EQ(ids(config), (std::vector<int32_t>{1, 7, 2, 3}));
  config.legacy = true;
  EXPECT_EQ(ids(config), (std::vector<int32_t>{1, 7, 2, 7}));
  config.add_prefix_space = false;
  config.bos_token = "</s>";
  EXPECT_EQ(ids(config), (std::vector<int32_t>{2, 3, 2, 3}));
  config.bos_token = "<s>";
  config.add_eos_token = true;
  config.eos_token = "<end>";
  EXPECT_THAT(ParseSentencePieceTokenizer(Marked(), config),
              StatusIs(kInvalid, HasSubstr("has no token '<end>', which tokenizer_config.json")));
  // Without a control piece there is nothing to put before a text.
  SKEIN_ASSERT_OK_AND_ASSIGN(
      const auto none,
      ParseSentencePieceTokenizer(
          Piece("<unk>", 0, 2) + Piece("a", -1, 1) + Trainer(kBpe) + Bytes(3, Number(3, 0)), {}));
  EXPECT_EQ(*none->Encode("a", {}), (std::vector<int32_t>{1}));
}

// What is spelled like a token is found once, whatever follows.
TEST(SentencePieceTokenizer, AddedTokensOfOneContent) {
  TokenizerConfig config;
  config.added_tokens = {{.content = "<x>", .id = 6}, {.content = "<x>", .id = 7}};
  SKEIN_ASSERT_OK_AND_ASSIGN(
      const auto tokenizer,
      ParseSentencePieceTokenizer(Pieces() + Trainer(kBpe) + Bytes(3, Number(3, 0)), config));
  EXPECT_EQ(*tokenizer->Encode(std::string_view("<x>\0a", 5), {.add_special_tokens = false}),
            (std::vector<int32_t>{6, 0, 3}));
}

// A folder with a tokenizer.model and no tokenizer.json.
class SentencePieceFolder : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = absl::StrCat(testing::TempDir(), "/sentence_piece_", getpid());
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  void Write(const std::string& name, const std::string& bytes) {
    std::ofstream(folder_ + "/" + name, std::ios::binary) << bytes;
  }

  std::string folder_;
};

TEST_F(SentencePieceFolder, ReadsTheModelAndWhatIsSaidOfIt) {
  EXPECT_THAT(LoadTokenizer(folder_), StatusIs(absl::StatusCode::kNotFound,
                                               AllOf(HasSubstr(folder_ + "/tokenizer.json"),
                                                     HasSubstr("there is no tokenizer.model"))));
  Write("tokenizer.model", Pieces() + Trainer(kBpe) + Bytes(3, Number(3, 0)));
  SKEIN_ASSERT_OK_AND_ASSIGN(const auto plain, LoadTokenizer(folder_));
  EXPECT_EQ(*plain->Encode("ab", {}), (std::vector<int32_t>{1, 5}));

  Write("added_tokens.json", R"({"<y>": 7, "<x>": 9})");
  Write("tokenizer_config.json", R"({"add_bos_token": false, "added_tokens_decoder": {
      "6": {"content": "<x>", "special": true, "rstrip": true}}})");
  SKEIN_ASSERT_OK_AND_ASSIGN(const auto added, LoadTokenizer(folder_));
  EXPECT_EQ(*added->Encode("<x> ab<y>", {.parse_special = true}), (std::vector<int32_t>{6, 5, 7}));
  EXPECT_TRUE(added->IsSpecial(6));
  EXPECT_FALSE(added->IsSpecial(7));

  // Control pieces stay special, and so is what has a role.
  Write("added_tokens.json", R"({"<unk>": 0, "</s>": 2, "<im_end>": 6, "<y>": 7})");
  Write("tokenizer_config.json", R"({"eos_token": {"content": "<im_end>"}, "pad_token": "<p>",
      "additional_special_tokens": ["<q>"]})");
  SKEIN_ASSERT_OK_AND_ASSIGN(const auto roles, LoadTokenizer(folder_));
  for (const int32_t id : {0, 1, 2, 6}) EXPECT_TRUE(roles->IsSpecial(id)) << id;
  EXPECT_FALSE(roles->IsSpecial(7));
  EXPECT_EQ(*roles->Encode("a</s>", {.add_special_tokens = false}), (std::vector<int32_t>{3, 0}));

  Write("added_tokens.json", R"({"<y>": -7})");
  EXPECT_THAT(LoadTokenizer(folder_),
              StatusIs(kInvalid, AllOf(HasSubstr(folder_ + "/added_tokens.json: [\"<y>\"]"),
                                       HasSubstr("must be in [0, 4194304)"))));
  Write("tokenizer_config.json", R"({"added_tokens_decoder": {"x": {"content": "<x>"}}})");
  EXPECT_THAT(LoadTokenizer(folder_),
              StatusIs(kInvalid, AllOf(HasSubstr(folder_ + "/tokenizer_config.json: "),
                                       HasSubstr("added_tokens_decoder[\"x\"]: is no id"))));
  for (const char* twice : {R"({"6": {"content": "<x>"}, "7": {"content": "<x>"}})",
                            R"({"6": {"content": "<x>"}, "06": {"content": "<y>"}})"}) {
    Write("tokenizer_config.json", absl::StrCat(R"({"added_tokens_decoder": )", twice, "}"));
    EXPECT_THAT(LoadTokenizer(folder_),
                StatusIs(kInvalid, HasSubstr("has the content or the id of another")));
  }
  Write("tokenizer_config.json", "[]");
  EXPECT_THAT(LoadTokenizer(folder_), StatusIs(kInvalid, HasSubstr("tokenizer_config.json: ")));
  Write("tokenizer_config.json", "{}");
  Write("added_tokens.json", "{}");
  Write("tokenizer.model", "x");
  EXPECT_THAT(
      LoadTokenizer(folder_),
      StatusIs(kInvalid, HasSubstr(folder_ + "/tokenizer.model: is no SentencePiece model")));
}

}  // namespace
}  // namespace skein::model
