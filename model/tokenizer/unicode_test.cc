// Every code point, held against testdata/unicode_classes.json, which `tokenizers` made.
#include <algorithm>
#include <cstdint>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "base/test_util.h"
#include "model/tokenizer/code_point_set.h"
#include "model/tokenizer/regex.h"
#include "model/tokenizer/utf8.h"

namespace skein::model {
namespace {

using ::nlohmann::json;

constexpr uint32_t kSurrogates = 0xD800;
constexpr uint32_t kAfterSurrogates = 0xE000;

void AppendUtf8(uint32_t c, std::string& text) {
  const auto add = [&](uint32_t byte) { text += static_cast<char>(byte); };
  if (c < 0x80) return add(c);
  if (c < 0x800) {
    add(0xC0 | c >> 6);
  } else {
    if (c < 0x10000) {
      add(0xE0 | c >> 12);
    } else {
      add(0xF0 | c >> 18);
      add(0x80 | (c >> 12 & 0x3F));
    }
    add(0x80 | (c >> 6 & 0x3F));
  }
  add(0x80 | (c & 0x3F));
}

std::string AllCharacters() {
  std::string text;
  for (uint32_t c = 0; c < kCodePoints; ++c) {
    if (c < kSurrogates || c >= kAfterSurrogates) AppendUtf8(c, text);
  }
  return text;
}

std::vector<bool> Expected(const std::string& edges) {
  std::vector<bool> in(kCodePoints);
  std::istringstream stream(edges);
  uint32_t from = 0;
  bool inside = false;
  for (uint32_t edge; stream >> std::hex >> edge; inside = !inside) {
    std::fill(in.begin() + from, in.begin() + edge, inside);
    from = edge;
  }
  std::fill(in.begin() + from, in.end(), inside);
  std::fill(in.begin() + kSurrogates, in.begin() + kAfterSurrogates, false);
  return in;
}

std::vector<bool> Matched(const std::string& pattern, const std::string& text) {
  std::vector<bool> in(kCodePoints);
  const absl::StatusOr<Regex> regex = Regex::Compile(pattern, /*literal=*/false);
  SKEIN_EXPECT_OK(regex.status());
  if (!regex.ok()) return in;
  const auto pieces = regex->Cut({text}, /*keep_matches=*/true, /*keep_gaps=*/false);
  SKEIN_EXPECT_OK(pieces.status());
  for (const std::string_view piece : *pieces) {
    for (size_t at = 0; at < piece.size();) in[ReadCodePoint(piece, at)] = true;
  }
  return in;
}

// How many differ, and the first of them.
std::string Differences(const std::vector<bool>& actual, const std::vector<bool>& expected) {
  size_t count = 0;
  uint32_t first = 0;
  for (uint32_t c = kCodePoints; c-- > 0;) {
    if (actual[c] == expected[c]) continue;
    ++count;
    first = c;
  }
  std::ostringstream out;
  if (count > 0) out << count << " code points, U+" << std::hex << first << " first";
  return out.str();
}

TEST(Unicode, EveryClassHasTheCodePointsThatTheLibraryHas) {
  const json classes = json::parse(std::ifstream("model/tokenizer/testdata/unicode_classes.json"));
  ASSERT_EQ(classes.size(), 31u);  // \s, \d and 29 categories
  const std::string text = AllCharacters();
  std::map<std::string, std::vector<bool>> expected;
  for (const auto& [pattern, edges] : classes.items()) {
    expected[pattern] = Expected(edges.get<std::string>());
    if (pattern[1] != 'p') continue;
    std::vector<bool>& whole = expected["\\p{" + pattern.substr(3, 1) + "}"];
    whole.resize(kCodePoints);
    for (uint32_t c = 0; c < kCodePoints; ++c) {
      if (expected[pattern][c]) whole[c] = true;
    }
  }
  ASSERT_EQ(expected.size(), 38u);
  for (const auto& [pattern, in] : expected) {
    EXPECT_EQ(Differences(Matched(pattern, text), in), "") << pattern;
    EXPECT_EQ(Differences(Matched("[" + pattern + "]", text), in), "") << pattern;
    std::vector<bool> out = in;
    out.flip();
    std::fill(out.begin() + kSurrogates, out.begin() + kAfterSurrogates, false);
    EXPECT_EQ(Differences(Matched("[^" + pattern + "]+", text), out), "") << pattern;
  }
}

// What Debian 12's PCRE2 does not know yet: letters, a digit and a mark of Unicode 15 and 16.
TEST(Unicode, CharactersThatAreNewer) {
  const struct {
    const char* pattern;
    const char* text;
  } cases[] = {{R"(\p{L})", "\U000105C0"},   // Todhri, 16
               {R"(\p{Lo})", "\U00031350"},  // Han, 15
               {R"(\p{Nd})", "\U00010D40"},  // Garay, 16
               {R"(\d)", "\U00011F50"},      // Kawi, 15
               {R"(\p{M})", "\u0897"}};      // Arabic, 16
  for (const auto& [pattern, text] : cases) {
    SKEIN_ASSERT_OK_AND_ASSIGN(const Regex regex, Regex::Compile(pattern, /*literal=*/false));
    EXPECT_EQ(regex.Cut({text}, true, false)->size(), 1u) << pattern;
  }
}

TEST(CodePointSet, IsMadeOfRanges) {
  CodePointSet set('b', 'd');
  set.Add(CodePointSet('f'));
  set.Add(CodePointSet('e'));
  set.Add(CodePointSet('c', 'c'));
  EXPECT_THAT(set.edges(), testing::ElementsAre('b', 'g'));
  set.Add(CodePointSet('x', kCodePoints - 1));
  EXPECT_THAT(set.Complement().edges(), testing::ElementsAre(0, 'b', 'g', 'x'));
  EXPECT_EQ(set.Complement().Complement().edges(), set.edges());
  EXPECT_THAT(CodePointSet().Complement().edges(), testing::ElementsAre(0, kCodePoints));
  EXPECT_THAT(CodePointSet().Complement().Complement().edges(), testing::ElementsAre());
  for (const uint32_t c : {'a', 'h', 'w'}) EXPECT_FALSE(set.Contains(c));
  for (const uint32_t c : {'b', 'f', 'x'}) EXPECT_TRUE(set.Contains(c));
  EXPECT_FALSE(GeneralCategory("Lx").has_value());
  EXPECT_FALSE(GeneralCategory("").has_value());
}

}  // namespace
}  // namespace skein::model
