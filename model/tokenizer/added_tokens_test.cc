#include "model/tokenizer/added_tokens.h"

#include <random>
#include <string>
#include <utility>
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

Normalizer With(Normalizer::Step step) {
  std::vector<Normalizer::Step> steps;
  steps.push_back(std::move(step));
  return Normalizer(std::move(steps));
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
  // Tokens that are looked for in normalised text are no different.
  EXPECT_EQ(Cut(Tokens(), "a<e>b", true, {{0, 1}, {4, 5}}), "a|[4]|b");
  EXPECT_EQ(Cut(Tokens(), "<e><e><e>", true, {{3, 6}}), "[4]|<e>|[4]");
  EXPECT_EQ(Cut(Tokens(), "<e>", true, {{1, 2}}), "<e>");
}

// As a step of JSON's pipelines cannot: runs of spaces become one.
TEST(AddedTokensTest, SentencePiecesNormalizerKeepsTrackOfPlainBytes) {
  std::vector<AddedToken> added = {
      {.content = "<\u2581e>", .id = 4, .special = true, .normalized = true}};
  const AddedTokens tokens(added,
                           With(SentencePieceNormalizer(SentencePieceNormalizer::Options())));
  EXPECT_EQ(Cut(tokens, "a <  e> b", true), "\u2581a\u2581|[4]|\u2581b");
  // A user's space that another one swallows is inside of the token, too.
  EXPECT_EQ(Cut(tokens, "a <  e> b", true, {{4, 5}}), "\u2581a\u2581<\u2581e>\u2581b");
  EXPECT_EQ(Cut(tokens, "a <  e> b", true, {{3, 4}}), "\u2581a\u2581<\u2581e>\u2581b");
  EXPECT_EQ(Cut(tokens, "a <  e> b", true, {{0, 2}, {7, 9}}), "\u2581a\u2581|[4]|\u2581b");
  EXPECT_EQ(Cut(tokens, "  < e>  ", true, {{0, 2}, {6, 8}}), "\u2581|[4]");
}

// What composes with a token's end makes another character of it; what does not is beside it.
TEST(AddedTokensTest, FormsAreMadeOfBothSides) {
  const AddedTokens tokens({{.content = "<e>", .id = 4, .special = true, .normalized = true}},
                           With(Normalizer::Form::kNfc));
  EXPECT_EQ(Cut(tokens, "<e>\u0301", true, {{3, 5}}), "[4]|\u0301");
  EXPECT_EQ(Cut(tokens, "<e>\u0338", true, {{3, 5}}), "<e\u226F");
  EXPECT_EQ(Cut(tokens, "\u00e9<e>\u3042", true, {{0, 2}, {5, 8}}), "\u00e9|[4]|\u3042");
  // Half of a character is all of it.
  EXPECT_EQ(Cut(tokens, "\u3042<e>", true, {{2, 3}}), "\u3042|[4]");
  EXPECT_EQ(Cut(tokens, "<e>\u1100\u1161\u11A8", true, {{6, 9}}), "[4]|\uAC01");
  EXPECT_EQ(Cut(tokens, "<e>\u09C7\u09BE", true, {{3, 9}}), "[4]|\u09CB");
  EXPECT_EQ(Cut(tokens, "\u00e9e\u0301<e>e\u0301", true, {{3, 5}, {9, 11}}),
            "\u00e9\u00e9|[4]|\u00e9");
}

TEST(AddedTokensTest, WhoWroteATextChangesNoneOfItsForms) {
  const std::vector<std::string> kParts = {
      "a",      "e",      "<",      ">",      "\u0301", "\u0338", "\u0327", "\u0323",     "\u1100",
      "\u1161", "\u11A8", "\uAC00", "\uFF76", "\uFF9E", "\u09C7", "\u09BE", "\u0CC6",     "\u0CC2",
      "\u0CD5", "\uFDFA", "\uFB01", "\u1E9B", "\u0344", "\u2126", "\u212B", "\U0001D157", "\u0F71"};
  std::mt19937 random(11);
  using Form = Normalizer::Form;
  for (const Form form : {Form::kNfc, Form::kNfd, Form::kNfkc, Form::kNfkd}) {
    const Normalizer normalizer = With(form);
    for (int i = 0; i < 3000; ++i) {
      std::string text;
      std::vector<Range> marked;
      for (size_t part = 0; part < 8; ++part) {
        const auto begin = static_cast<int64_t>(text.size());
        text += kParts[random() % kParts.size()];
        if (random() % 3 == 0) marked.push_back({begin, static_cast<int64_t>(text.size())});
      }
      EXPECT_EQ(normalizer.Apply(text, true, marked)->text, normalizer.Apply(text)->text) << text;
    }
  }
}

}  // namespace
}  // namespace skein::model
