#include "model/tokenizer/bpe.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "base/test_util.h"
#include "model/tokenizer/byte_alphabet.h"

namespace skein::model {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Merges = std::vector<std::pair<std::string, std::string>>;

Vocabulary ByteVocabulary() {
  Vocabulary vocabulary;
  for (int byte = 0; byte < 256; ++byte) {
    vocabulary[SpellByte(static_cast<uint8_t>(byte))] = byte;
  }
  return vocabulary;
}

Vocabulary VocabularyFor(const Merges& merges) {
  Vocabulary vocabulary = ByteVocabulary();
  for (const auto& [left, right] : merges) {
    vocabulary.emplace(left + right, static_cast<int32_t>(vocabulary.size()));
  }
  return vocabulary;
}

std::vector<int32_t> Encode(const Bpe& bpe, std::string_view text) {
  Bpe::Work work;
  std::vector<int32_t> ids;
  bpe.Encode(text, work, ids);
  return ids;
}

// The definition: again and again, merge the leftmost pair of the lowest rank.
std::vector<int32_t> EncodeSlowly(const Vocabulary& vocabulary, const Merges& merges,
                                  std::string_view text) {
  std::vector<std::string> parts;
  for (const char c : text) parts.push_back(SpellByte(static_cast<uint8_t>(c)));
  for (;;) {
    size_t best_rank = merges.size();
    size_t best_at = 0;
    for (size_t at = 0; at + 1 < parts.size(); ++at) {
      const auto rank = static_cast<size_t>(
          std::find(merges.begin(), merges.end(), std::pair(parts[at], parts[at + 1])) -
          merges.begin());
      if (rank < best_rank) {
        best_rank = rank;
        best_at = at;
      }
    }
    if (best_rank == merges.size()) break;
    parts[best_at] += parts[best_at + 1];
    parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(best_at) + 1);
  }
  std::vector<int32_t> ids;
  for (const std::string& part : parts) ids.push_back(vocabulary.at(part));
  return ids;
}

TEST(ByteAlphabet, SpellsEveryByteAndBack) {
  std::map<std::string, int> spellings;
  for (int byte = 0; byte < 256; ++byte) {
    const std::string spelling = SpellByte(static_cast<uint8_t>(byte));
    EXPECT_EQ(UnspellBytes(spelling), std::string(1, static_cast<char>(byte)));
    ++spellings[spelling];
  }
  EXPECT_EQ(spellings.size(), 256u);
  EXPECT_EQ(SpellByte(' '), "\u0120");
  EXPECT_EQ(SpellByte('\n'), "\u010A");
  EXPECT_EQ(SpellByte(0xAD), "\u0143");
  EXPECT_EQ(SpellByte(0xFF), "\u00FF");
  EXPECT_EQ(UnspellBytes("\u0120the"), " the");
  for (const char* outside :
       {" ", "a b", "\n", "\u00AD", "\u0144", "\u2581", "\U0001F44D", "\xC4"}) {
    EXPECT_EQ(UnspellBytes(outside), std::nullopt) << outside;
  }
}

TEST(Bpe, MergesByRankThenFromTheLeft) {
  const Merges merges = {{"b", "c"}, {"a", "b"}, {"a", "a"}, {"aa", "aa"}};
  SKEIN_ASSERT_OK_AND_ASSIGN(const Bpe bpe, Bpe::Create(VocabularyFor(merges), merges, false));
  EXPECT_THAT(Encode(bpe, ""), ElementsAre());
  EXPECT_THAT(Encode(bpe, "x"), ElementsAre('x'));
  EXPECT_THAT(Encode(bpe, "abc"), ElementsAre('a', 256));
  EXPECT_THAT(Encode(bpe, "abab"), ElementsAre(257, 257));
  EXPECT_THAT(Encode(bpe, "aaa"), ElementsAre(258, 'a'));
  EXPECT_THAT(Encode(bpe, "aaaaaaa"), ElementsAre(259, 258, 'a'));
}

TEST(Bpe, RandomMergesAgreeWithTheDefinition) {
  std::mt19937 random(5);
  for (int round = 0; round < 60; ++round) {
    const std::string letters = round % 2 == 0 ? "ab" : "abc\xC3\xA9 ";
    std::vector<std::string> tokens;
    for (const char c : letters) tokens.push_back(SpellByte(static_cast<uint8_t>(c)));
    Merges merges;
    while (merges.size() < 25) {
      const std::string left = tokens[random() % tokens.size()];
      const std::string right = tokens[random() % tokens.size()];
      if (std::count(merges.begin(), merges.end(), std::pair(left, right)) > 0) continue;
      merges.emplace_back(left, right);
      if (left.size() + right.size() < 12) tokens.push_back(left + right);
    }
    const Vocabulary vocabulary = VocabularyFor(merges);
    SKEIN_ASSERT_OK_AND_ASSIGN(const Bpe bpe, Bpe::Create(vocabulary, merges, false));
    for (int i = 0; i < 40; ++i) {
      std::string text;
      for (size_t size = random() % 60; size > 0; --size)
        text += letters[random() % letters.size()];
      EXPECT_EQ(Encode(bpe, text), EncodeSlowly(vocabulary, merges, text)) << text;
    }
  }
}

TEST(Bpe, IgnoreMergesTakesWholeTokensFirst) {
  const Merges merges = {{"a", "b"}};
  Vocabulary vocabulary = VocabularyFor(merges);
  vocabulary["\u0120xyz"] = 300;
  for (const bool ignore_merges : {false, true}) {
    SKEIN_ASSERT_OK_AND_ASSIGN(const Bpe bpe, Bpe::Create(vocabulary, merges, ignore_merges));
    EXPECT_THAT(Encode(bpe, "xyz"), ElementsAre('x', 'y', 'z'));
    EXPECT_EQ(Encode(bpe, " xyz").size(), ignore_merges ? 1u : 4u);
    EXPECT_EQ(Encode(bpe, " xyzab").size(), 5u);
  }
}

TEST(Bpe, RefusesWhatItCannotEncodeWith) {
  const Vocabulary bytes = ByteVocabulary();
  Vocabulary no_space = bytes;
  no_space.erase("\u0120");
  Vocabulary no_impossible_byte = bytes;
  for (const int byte : {0xC0, 0xC1, 0xF5, 0xFF}) {
    no_impossible_byte.erase(SpellByte(static_cast<uint8_t>(byte)));
  }
  const auto refuses = [](const Vocabulary& vocabulary, const Merges& merges, const char* message) {
    EXPECT_THAT(Bpe::Create(vocabulary, merges, false),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(message)));
  };
  refuses({}, {}, "no token for byte 0");
  refuses(no_space, {}, "no token for byte 32");
  refuses(bytes, {{"a", "b"}}, "merge 0 (\"a\", \"b\"): the vocabulary has no token \"ab\"");
  refuses(bytes, {{"ab", "c"}}, "has no token \"ab\"");
  refuses(bytes, {{"c", "ab"}}, "has no token \"ab\"");
  refuses(bytes, {{"", "a"}}, "has no token \"\"");
  SKEIN_EXPECT_OK(Bpe::Create(no_impossible_byte, {}, false).status());
}

TEST(Bpe, HiddenTokensAreMadeByNoMerge) {
  const Merges merges = {{"a", "b"}, {"ab", "c"}, {"b", "c"}};
  const Vocabulary vocabulary = VocabularyFor(merges);
  for (const bool ignore_merges : {false, true}) {
    SKEIN_ASSERT_OK_AND_ASSIGN(const Bpe bpe, Bpe::Create(vocabulary, merges, ignore_merges));
    const auto encode = [&](const std::string& hides) {
      std::vector<bool> hidden(vocabulary.size());
      hidden[static_cast<size_t>(vocabulary.at(hides))] = true;
      Bpe::Work work;
      std::vector<int32_t> ids;
      bpe.Encode("abc", work, ids, &hidden);
      return ids;
    };
    const auto id = [&](const std::string& token) { return vocabulary.at(token); };
    EXPECT_THAT(encode("abc"), ElementsAre(id("ab"), id("c")));
    if (!ignore_merges) EXPECT_THAT(encode("ab"), ElementsAre(id("a"), id("bc")));
    EXPECT_THAT(encode("bc"), ElementsAre(id("abc")));
  }
}

}  // namespace
}  // namespace skein::model
