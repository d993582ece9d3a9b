#include "model/tokenizer/regex.h"

#include <string>
#include <vector>

#include "base/test_util.h"
#include "model/tokenizer/pre_tokenizer.h"

namespace skein::model {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::string_view> Cut(std::string_view pattern, bool literal, bool keep_matches,
                                  bool keep_gaps, std::string_view text) {
  const absl::StatusOr<Regex> regex = Regex::Compile(pattern, literal);
  SKEIN_EXPECT_OK(regex.status());
  if (!regex.ok()) return {};
  const auto pieces = regex->Cut({text}, keep_matches, keep_gaps);
  SKEIN_EXPECT_OK(pieces.status());
  return pieces.value_or(std::vector<std::string_view>());
}

TEST(Regex, KeepsMatchesAndGaps) {
  EXPECT_THAT(Cut("[0-9]+", false, true, true, "ab12c3"), ElementsAre("ab", "12", "c", "3"));
  EXPECT_THAT(Cut("[0-9]+", false, false, true, "ab12c3"), ElementsAre("ab", "c"));
  EXPECT_THAT(Cut("[0-9]+", false, true, false, "ab12c3"), ElementsAre("12", "3"));
  EXPECT_THAT(Cut("x*", false, true, true, "\u00E9xx\U0001F44D"),
              ElementsAre("\u00E9", "xx", "\U0001F44D"))
      << "empty matches step over whole characters";
  EXPECT_THAT(Cut("[a.b]+", true, true, true, "ab[a.b]+"), ElementsAre("ab", "[a.b]+"));
  EXPECT_THAT(Cut("a", false, true, true, ""), ElementsAre());
}

TEST(Regex, SpaceIsUnicodesWhiteSpace) {
  for (const char* space :
       {"\t", "\v", "\u0085", "\u00A0", "\u1680", "\u2003", "\u2028", "\u3000"}) {
    EXPECT_THAT(Cut(R"(\s)", false, true, false, space), ElementsAre(space));
    EXPECT_THAT(Cut(R"([^\S])", false, true, false, space), ElementsAre(space));
  }
  for (const char* other : {"\u180E", "\u200B", "\u2060", "\uFEFF", "\x1C", "a"}) {
    EXPECT_THAT(Cut(R"(\s)", false, true, false, other), ElementsAre()) << other;
  }
}

TEST(Regex, WhatTheEnginesReadDifferentlyIsRefusedByName) {
  const struct {
    const char* pattern;
    const char* named;
  } cases[] = {
      {R"(\w+)", "\\w"},
      {R"(\bx)", "\\b"},
      {R"(\h)", "\\h"},
      {R"(\p{Han})", "\\p"},
      {R"(\pL)", "\\p"},
      {R"(\x41)", "\\x"},
      {R"(\u0041)", "\\u"},
      {R"((a)\1)", "\\1"},
      {R"(\p{L)", "\\p"},
      {R"(a\)", "\\"},
      {"^a", "^"},
      {"a$", "$"},
      {"a{1,3}+", "}+"},
      {"[a[b]]", "["},
      {"[[:alpha:]]", "["},
      {"[a&&b]", "&&"},
      {"[]a]", "[]"},
      {"[^]a]", "[]"},
      {"(?m:a)", "(?m"},
      {"(?<name>a)", "(?<"},
      {"(?R)", "(?R"},
      {"(*ACCEPT)", "(*"},
      {"(?#c)", "(?#"},
      {"a{,3}", "{,"},
      {"[a-c-e]", "-"},
      {R"([\s-a])", "-"},
      {R"([a-\d])", "-"},
      // Oniguruma finds sharp s and ligatures.
      {"(?i:ss)", "(?i:ss)"},
      {"(?i:(?:aFi))", "(?i:fi)"},
      {"(?i:\u00E9)", "(?i:\u00E9"},
      {"(?i:[\u00E9])", "(?i:[\u00E9]"},
      {"(?i:[^a])", "(?i:[^a]"},
      {R"((?i:[\p{L}]))", R"((?i:[\p{L}])"},
  };
  for (const auto& [pattern, named] : cases) {
    EXPECT_THAT(Regex::Compile(pattern, false),
                StatusIs(absl::StatusCode::kUnimplemented,
                         AllOf(HasSubstr(std::string("\"") + named), HasSubstr(pattern))))
        << pattern;
  }
  for (const char* pattern :
       {"(a", "[a", "*", "\\p{Lx}", "(?<!a+)b", "a{3,1}", "[c-a]", "a[b", "\xFF"}) {
    EXPECT_THAT(Regex::Compile(pattern, false),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("offset")))
        << pattern;
  }
}

TEST(Regex, CaseIsIgnoredAsOnigurumaDoes) {
  const char* pattern = "(?i:'[sk]|(?:re)|l+)s";
  for (const char* text : {"'ss", "'Ss", "'\u017Fs", "'\u212As", "'Ks", "REs", "rEs", "lLs"}) {
    EXPECT_THAT(Cut(pattern, false, true, false, text), ElementsAre(text));
  }
  for (const char* text : {"'sS", "'s\u017F", "'\u00DFs", "'xs"}) {
    EXPECT_THAT(Cut(pattern, false, true, false, text), ElementsAre()) << text;
  }
}

TEST(Regex, CharactersBeyondAsciiStandForThemselves) {
  EXPECT_THAT(Cut("[\u4E00-\u9FA5\u00E9-]+|\u00DF+", false, true, true,
                  "a\u4E2D\u9FA5-b\u00DF\u00DFc\u9FA6"),
              ElementsAre("a", "\u4E2D\u9FA5-", "b", "\u00DF\u00DF", "c\u9FA6"));
  EXPECT_THAT(Cut("[^\u00E9]", false, true, false, "\u00E9\u00E8"), ElementsAre("\u00E8"));
  EXPECT_THAT(Cut("a.", false, true, false, "a\u00E9a\na\ra\u2028"),
              ElementsAre("a\u00E9", "a\r", "a\u2028"));
  EXPECT_THAT(Cut("\u00E9", true, true, true, "\u00E8\u00E9\u00C3"),
              ElementsAre("\u00E8", "\u00E9", "\u00C3"));
  EXPECT_THAT(Cut("", true, true, true, "\u00E8\u00E9"), ElementsAre("\u00E8", "\u00E9"));
}

// Each is a kind of its own, which a byte has only 128 for.
TEST(Regex, TooManyKindsOfCharactersAreRefused) {
  for (const bool fits : {true, false}) {
    std::string kinds;
    for (int i = 0; i < (fits ? 127 : 128); ++i) {
      kinds += static_cast<char>(0xC4 + i / 64);
      kinds += static_cast<char>(0x80 + i % 64);
    }
    EXPECT_THAT(Regex::Compile(kinds, false).status().code(),
                fits ? absl::StatusCode::kOk : absl::StatusCode::kUnimplemented);
  }
}

// In Ruby $ is the end of any line.
TEST(Regex, SpaceAtTheEndOfALine) {
  EXPECT_THAT(Cut(R"(\s+$)", false, true, true, " a  \n b\u3000\u3000"),
              ElementsAre(" a", "  ", "\n b", "\u3000\u3000"));
  std::string text(1 << 20, ' ');
  EXPECT_THAT(Cut(R"(\s+$)", false, true, true, text), ElementsAre(text));
  text += "x";
  EXPECT_THAT(Cut(R"(\s+$)", false, true, true, text), ElementsAre(text));
}

TEST(Regex, PatternsInUseCutLongRuns) {
  const char* llama3 = R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|)"
                       R"( ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
  const char* gpt4o =
      R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)"
      R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
      R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*)"
      R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|)"
      R"(\s*[\r\n]+|\s+(?!\S)|\s+)";
  constexpr int kCount = 1 << 20;
  for (const char* pattern : {kGpt2Pattern.data(), llama3, gpt4o}) {
    SKEIN_ASSERT_OK_AND_ASSIGN(const Regex regex, Regex::Compile(pattern, false));
    for (const std::string unit :
         {" ", "\n", "\r\n", "\u3000", "a", "A", "\u6F22", "\u0301", "!", "/", "\U0001F44D"}) {
      std::string text;
      for (int i = 0; i < kCount; ++i) text += unit;
      for (const char* end : {"", "x"}) {
        text += end;
        SKEIN_ASSERT_OK_AND_ASSIGN(const auto pieces, regex.Cut({text}, true, true));
        EXPECT_LE(pieces.size(), 3u) << testing::PrintToString(unit);
      }
    }
  }
}

TEST(Regex, GivesUpOnExplosivePatterns) {
  SKEIN_ASSERT_OK_AND_ASSIGN(const Regex regex, Regex::Compile("(?:a+)+b|c", false));
  const std::string text = std::string(40, 'a') + "!b";
  EXPECT_THAT(regex.Cut({text}, true, true),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("gave up at byte 0 of 42"), HasSubstr("(?:a+)+b|c"))));
}

TEST(Regex, APatternThatOutgrowsTheStackIsInterpreted) {
  const std::string text(200'000, 'a');
  EXPECT_THAT(Cut("(?:a|b)+c", false, true, true, text + "c"), ElementsAre(text + "c"));
}

TEST(PreTokenizer, StepsWorkOnThePiecesOfTheOneBefore) {
  std::vector<PreTokenizerStep> steps(2);
  SKEIN_ASSERT_OK_AND_ASSIGN(steps[0].regex, Regex::Compile(",", true));
  SKEIN_ASSERT_OK_AND_ASSIGN(steps[1].regex, Regex::Compile(kGpt2Pattern, false));
  steps[1].prefix = PreTokenizerStep::Prefix::kAlways;
  const PreTokenizer pre_tokenizer(std::move(steps));
  const auto pieces = [&](std::string_view text) {
    return pre_tokenizer.Cut(text, true)->pieces.size();
  };
  SKEIN_ASSERT_OK_AND_ASSIGN(const PreTokens pre_tokens, pre_tokenizer.Cut("ab cd, e", true));
  EXPECT_THAT(pre_tokens.pieces, ElementsAre(" ab", " cd", " ,", " e"));
  EXPECT_EQ(pieces(""), 0u);
}

}  // namespace
}  // namespace skein::model
