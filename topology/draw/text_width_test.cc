#include "topology/draw/text_width.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace skein::topology::draw {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// Advances as DejaVu Sans has them, of size 1.
TEST(TextWidth, IsThatOfTheWidestFontOrMore) {
  const struct {
    const char* text;
    double regular;
  } cases[] = {{"GPU0", 2.746},
               {"H100 80GB HBM3", 8.967},
               {"InfiniBand NDR · 50 GB/s", 12.431},
               {"node-17.cluster.example", 12.487},
               {"WWWWMMMM@@@%%%", 13.257},
               {"iiii||||'''...", 4.237}};
  for (const auto& c : cases) {
    SCOPED_TRACE(c.text);
    EXPECT_GE(TextWidth(c.text, {1}), c.regular);
    EXPECT_LE(TextWidth(c.text, {1}), c.regular * 1.1);
    EXPECT_GT(TextWidth(c.text, {1, true}), c.regular);
    EXPECT_DOUBLE_EQ(TextWidth(c.text, {12}), 12 * TextWidth(c.text, {1}));
  }
  EXPECT_EQ(TextWidth("", {12}), 0);
  EXPECT_GE(TextWidth("ÄÖÜß", {1}), 2.833);
  EXPECT_GE(TextWidth("日本", {1}), 2);
  EXPECT_GE(TextWidth("🧵", {1}), 1.5);
  EXPECT_LE(TextWidth("größer", {1}), 6 * 0.9);
}

TEST(Shorten, KeepsWhatFits) {
  const Font font = {10};
  EXPECT_EQ(Shorten("GPU0", font, 40), "GPU0");
  EXPECT_EQ(Shorten("GPU number 0", font, 60), "GPU num…");
  EXPECT_EQ(Shorten("GPU number 0", font, 35), "GPU…");  // no space before the ellipsis
  EXPECT_EQ(Shorten("GPU number 0", font, 10), "…");
  EXPECT_EQ(Shorten("GPU number 0", font, 9), "");
  const std::string text = "aü日🧵 WWW iii é";
  for (double width = 0; width < 200; width += 0.5) {
    const std::string shortened = Shorten(text, font, width);
    EXPECT_LE(TextWidth(shortened, font), width);
    if (shortened == text || shortened.empty()) continue;
    const std::string kept = shortened.substr(0, shortened.size() - 3);
    EXPECT_EQ(text.substr(0, kept.size()), kept);
    EXPECT_NE(text[kept.size()] & 0xc0, 0x80) << "a character is cut";
  }
}

TEST(Wrap, FillsLines) {
  const Font font = {10};
  EXPECT_THAT(Wrap({}, font, 100), IsEmpty());
  EXPECT_THAT(Wrap({"aaa", "bbb", "ccc"}, font, 60), ElementsAre("aaa · bbb", "ccc"));
  EXPECT_THAT(Wrap({"aaa", "bbb", "ccc"}, font, 1000), ElementsAre("aaa · bbb · ccc"));
  EXPECT_THAT(Wrap({"a", "bbbbbbbbbbbbbbbbbb", "c"}, font, 40), ElementsAre("a", "bbbb…", "c"));
}

}  // namespace
}  // namespace skein::topology::draw
