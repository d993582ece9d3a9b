#include "coordinator/service/stop_matcher.h"

#include <random>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace skein::coordinator {
namespace {

struct Result {
  std::string text;
  std::string stop;
  friend bool operator==(const Result&, const Result&) = default;
  friend std::ostream& operator<<(std::ostream& out, const Result& r) {
    return out << "'" << r.text << "' stopped by '" << r.stop << "'";
  }
};

// The definition, byte by byte.
Result Expected(const std::string& text, const std::vector<std::string>& stops) {
  for (size_t end = 1; end <= text.size(); ++end) {
    const std::string* best = nullptr;
    for (const std::string& stop : stops) {
      if (text.substr(0, end).ends_with(stop) && (best == nullptr || stop.size() > best->size())) {
        best = &stop;
      }
    }
    if (best != nullptr) return {text.substr(0, end - best->size()), *best};
  }
  return {text, ""};
}

Result Feed(const std::string& text, const std::vector<std::string>& stops,
            const std::vector<size_t>& pieces) {
  StopMatcher matcher(stops);
  Result result;
  size_t begin = 0;
  for (const size_t piece : pieces) {
    result.text += matcher.Push(std::string_view(text).substr(begin, piece));
    begin += piece;
  }
  if (matcher.matched() != nullptr) {
    result.stop = *matcher.matched();
  } else {
    result.text += matcher.Finish();
  }
  return result;
}

TEST(StopMatcherTest, AnswersEndBeforeTheFirstStopString) {
  struct Case {
    std::string text;
    std::vector<std::string> stops;
    Result want;
  };
  const std::vector<Case> cases = {
      {"hello", {}, {"hello", ""}},
      {"hello", {"x"}, {"hello", ""}},
      {"hello", {"l"}, {"he", "l"}},
      {"hello", {"hello"}, {"", "hello"}},
      {"abcd", {"abcd", "bc"}, {"a", "bc"}},
      {"abc", {"c", "bc", "abc"}, {"", "abc"}},
      {"aabaaab", {"aaab"}, {"aab", "aaab"}},
      {"ab ab ac", {"ab ac"}, {"ab ", "ab ac"}},
      {std::string("a\0b", 3), {std::string("\0b", 2)}, {"a", std::string("\0b", 2)}},
      {"\xE2\x82\xAC", {"\x82"}, {"\xE2", "\x82"}},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.text);
    EXPECT_EQ(Feed(c.text, c.stops, {c.text.size()}), c.want);
    EXPECT_EQ(Feed(c.text, c.stops, std::vector<size_t>(c.text.size(), 1)), c.want);
    EXPECT_EQ(Expected(c.text, c.stops), c.want);
  }
}

TEST(StopMatcherTest, TheCutOfTheStreamDoesNotMatter) {
  std::mt19937 random(7);
  const auto draw = [&](size_t below) { return random() % below; };
  for (int round = 0; round < 2000; ++round) {
    std::string text(draw(30), ' ');
    for (char& c : text) c = static_cast<char>('a' + draw(2));
    std::vector<std::string> stops(draw(4));
    for (std::string& stop : stops) {
      stop.resize(1 + draw(7));
      for (char& c : stop) c = static_cast<char>('a' + draw(2));
    }
    std::vector<size_t> pieces;
    for (size_t left = text.size(); left > 0; left -= pieces.back()) {
      pieces.push_back(1 + draw(left));
    }
    EXPECT_EQ(Feed(text, stops, pieces), Expected(text, stops)) << text;
  }
}

TEST(StopMatcherTest, OnlyWhatMayBeginAStopIsHeldBack) {
  StopMatcher matcher({"\nROMEO", "END"});
  EXPECT_EQ(matcher.Push("Say: \nROM"), "Say: ");
  EXPECT_EQ(matcher.Push("AN"), "\nROMAN");
  EXPECT_EQ(matcher.Push("E"), "");
  EXPECT_EQ(matcher.Push("x"), "Ex");
}

}  // namespace
}  // namespace skein::coordinator
