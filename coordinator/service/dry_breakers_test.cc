#include "coordinator/service/dry_breakers.h"

#include <algorithm>
#include <string>
#include <vector>

#include "base/test_util.h"
#include "coordinator/service/fake_tokenizer.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "model/tokenizer/tokenizer.h"

namespace skein::coordinator {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using ::testing::UnorderedElementsAre;

using Sequences = std::vector<std::vector<int32_t>>;
constexpr int32_t kWord = FakeTokenizer::kFirstWord;

TEST(DryBreakersTest, AByteIsFoundWithinEveryToken) {
  const FakeTokenizer tokenizer({"end.\n", "\n\n", "word", "a: \""});
  SKEIN_ASSERT_OK_AND_ASSIGN(const Sequences newline,
                             ResolveDryBreakers({"\n"}, tokenizer, tokenizer.vocab_size()));
  EXPECT_THAT(newline,
              UnorderedElementsAre(ElementsAre('\n'), ElementsAre(kWord), ElementsAre(kWord + 1)));
  // A token is listed once, whatever it has of several breakers.
  SKEIN_ASSERT_OK_AND_ASSIGN(const Sequences two,
                             ResolveDryBreakers({":", "\""}, tokenizer, tokenizer.vocab_size()));
  EXPECT_THAT(two,
              UnorderedElementsAre(ElementsAre(':'), ElementsAre('"'), ElementsAre(kWord + 3)));
  SKEIN_ASSERT_OK_AND_ASSIGN(const Sequences none, ResolveDryBreakers({}, tokenizer, 300));
  EXPECT_THAT(none, IsEmpty());
  // Bytes that are no text of their own.
  SKEIN_ASSERT_OK_AND_ASSIGN(const Sequences byte, ResolveDryBreakers({"\xFF"}, tokenizer, 300));
  EXPECT_THAT(byte, ElementsAre(ElementsAre(0xFF)));
}

TEST(DryBreakersTest, TokensBeyondTheLogitsAreLeftOut) {
  const FakeTokenizer tokenizer({"a\n", "b\n"});
  SKEIN_ASSERT_OK_AND_ASSIGN(const Sequences got, ResolveDryBreakers({"\n"}, tokenizer, kWord + 1));
  EXPECT_THAT(got, ElementsAre(ElementsAre('\n'), ElementsAre(kWord)));
}

TEST(DryBreakersTest, SpecialTokensCanBreakToo) {
  const FakeTokenizer tokenizer;
  SKEIN_ASSERT_OK_AND_ASSIGN(const Sequences got, ResolveDryBreakers({"<eos>"}, tokenizer, 257));
  EXPECT_THAT(got, testing::Contains(ElementsAre(FakeTokenizer::kEos)));
}

// The fake tokenizer spells text byte by byte.
TEST(DryBreakersTest, LongerOnesAreSpelledAfterWhatEndsWithTheirBeginning) {
  const FakeTokenizer tokenizer({"xen", "Then", "e", "nd", "sendy"});
  SKEIN_ASSERT_OK_AND_ASSIGN(const Sequences got,
                             ResolveDryBreakers({"end"}, tokenizer, tokenizer.vocab_size()));
  EXPECT_THAT(got, UnorderedElementsAre(ElementsAre(kWord + 4),           // s[end]y
                                        ElementsAre('e', 'n', 'd'),       // its own
                                        ElementsAre(kWord, 'd'),          // x[en][d]
                                        ElementsAre(kWord + 1, 'd'),      // Th[en][d]
                                        ElementsAre(kWord + 2, 'n', 'd')  // [e][n][d]
                                        ));
}

// Whether one of the sequences stands in `tokens`.
bool Breaks(const std::vector<int32_t>& tokens, const Sequences& sequences) {
  return std::any_of(sequences.begin(), sequences.end(), [&](const std::vector<int32_t>& sequence) {
    return std::search(tokens.begin(), tokens.end(), sequence.begin(), sequence.end()) !=
           tokens.end();
  });
}

TEST(DryBreakersTest, ARealTokenizersTextsBreakWhereTheStringStands) {
  SKEIN_ASSERT_OK_AND_ASSIGN(const auto tokenizer, model::LoadTokenizer("checkpoints/bard"));
  const struct {
    const char* breaker;
    const char* text;
    bool breaks;
  } cases[] = {
      {"\n", "To be\n", true},
      {"\n", "To be,\n\nor not", true},
      {"\n", "To be, or not", false},
      {"ROMEO:", "ROMEO:", true},
      {"ROMEO:", "good night!\n\nROMEO:\nMy love", true},
      {"ROMEO:", "O ROMEO: hear", true},
      {"ROMEO:", "O ROMEO, ROMEO; hear", false},
      {", and", "the king, and the queen", true},
      {", and", "the king and the queen,", false},
      {"\u00E9e", "la journ\u00E9e", true},  // of which no token may be cut out
      {"\u00E9e", "la journ\u00E9", false},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(c.text);
    SKEIN_ASSERT_OK_AND_ASSIGN(
        const Sequences sequences,
        ResolveDryBreakers({c.breaker}, *tokenizer, tokenizer->vocab_size()));
    SKEIN_ASSERT_OK_AND_ASSIGN(const std::vector<int32_t> tokens, tokenizer->Encode(c.text, {}));
    EXPECT_EQ(Breaks(tokens, sequences), c.breaks);
  }
}

TEST(DryBreakersTest, SpellingsAreBounded) {
  const std::vector<std::string> words(1000, "<");
  const FakeTokenizer tokenizer(words);
  SKEIN_ASSERT_OK_AND_ASSIGN(const Sequences got,
                             ResolveDryBreakers({"<>"}, tokenizer, tokenizer.vocab_size()));
  EXPECT_THAT(got, SizeIs(256));
  EXPECT_THAT(got.front(), ElementsAre('<', '>'));
  EXPECT_EQ(std::max_element(got.begin(), got.end())->front(), kWord + 254);
}

TEST(DryBreakersTest, WhatIsWrongIsNamed) {
  const FakeTokenizer tokenizer;
  const struct {
    std::vector<std::string> breakers;
    const char* says;
  } cases[] = {
      {std::vector<std::string>(17, "x"), "sampling.dry_breakers: 17 strings; at most 16"},
      {{"x", ""}, "sampling.dry_breakers[1]: 0 bytes is not in [1, 32]"},
      {{std::string(33, 'x')}, "sampling.dry_breakers[0]: 33 bytes"},
      {{"ab\xFF"}, "sampling.dry_breakers[0]: invalid UTF-8 at byte 2"},
  };
  for (const auto& c : cases) {
    EXPECT_THAT(ResolveDryBreakers(c.breakers, tokenizer, 257).status(),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(c.says)));
  }
}

}  // namespace
}  // namespace skein::coordinator
