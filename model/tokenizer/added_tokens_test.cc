#include "model/tokenizer/added_tokens.h"

#include <string>
#include <vector>

#include "base/test_util.h"

namespace skein::model {
namespace {

// Pieces as "[id]" and text.
std::string Cut(const AddedTokens& tokens, std::string_view text, bool parse_special,
                std::vector<Range> plain = {}) {
  const auto pieces = tokens.Cut(text, parse_special, plain);
  EXPECT_THAT(pieces.status(), IsOk());
  std::string all;
  for (const AddedTokens::Piece& piece : pieces->pieces) {
    if (!all.empty()) all += '|';
    all += piece.id >= 0 ? "[" + std::to_string(piece.id) + "]" : std::string(piece.text);
  }
  return all;
}

const AddedTokens& Tokens() {
  static const auto& tokens =
      *new AddedTokens({{.content = "<s>", .id = 1, .special = true},
                        {.content = "<s>x", .id = 2, .special = true},
                        {.content = "<think>", .id = 3},
                        {.content = "<e>", .id = 4, .special = true, .normalized = true}},
                       Normalizer());
  return tokens;
}

TEST(AddedTokensTest, SpecialTokensAreParsedWhereThatIsAskedFor) {
  EXPECT_EQ(Cut(Tokens(), "a<s>b<think>c<e>", true), "a|[1]|b|[3]|c|[4]");
  EXPECT_EQ(Cut(Tokens(), "a<s>b<think>c<e>", false), "a<s>b|[3]|c<e>");
  EXPECT_EQ(Cut(Tokens(), "<s>x", true), "[2]");
}

TEST(AddedTokensTest, PlainBytesArePartOfNoSpecialToken) {
  // a<s>b<s>c: the first token is a user's, the second is not.
  EXPECT_EQ(Cut(Tokens(), "a<s>b<s>c", true, {{1, 4}}), "a<s>b|[1]|c");
  for (int64_t at = 0; at < 3; ++at) {
    EXPECT_EQ(Cut(Tokens(), "<s>b<s>", true, {{at, at + 1}}), "<s>b|[1]") << at;
  }
  // Beside a token they change nothing.
  EXPECT_EQ(Cut(Tokens(), "a<s>b", true, {{0, 1}, {4, 5}}), "a|[1]|b");
  // What a user writes behind a token makes it no longer one.
  EXPECT_EQ(Cut(Tokens(), "<s>x", true, {{3, 4}}), "[1]|x");
  EXPECT_EQ(Cut(Tokens(), "<<s>", true, {{0, 1}}), "<|[1]");
  // Tokens that are not special stand for their text, whoever wrote it.
  EXPECT_EQ(Cut(Tokens(), "<think>", true, {{0, 7}}), "[3]");
  EXPECT_EQ(Cut(Tokens(), "a<e>", true, {{1, 4}}), "a<e>");
  EXPECT_EQ(Cut(Tokens(), "a<s><e>", true, {{0, 1}}), "a|[1]|[4]");
}

}  // namespace
}  // namespace skein::model
