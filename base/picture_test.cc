#include "base/picture.h"

#include <string>

#include "gtest/gtest.h"

namespace skein {
namespace {

TEST(EscapeXml, LeavesTextAsItIs) {
  EXPECT_EQ(EscapeXml("größer · 日本 🧵 100% 'a' \\"), "größer · 日本 🧵 100% 'a' \\");
  EXPECT_EQ(EscapeXml(""), "");
}

TEST(EscapeXml, EscapesWhatXmlObeys) {
  EXPECT_EQ(EscapeXml("<a href=\"x\">&amp;</a>"),
            "&lt;a href=&quot;x&quot;&gt;&amp;amp;&lt;/a&gt;");
  EXPECT_EQ(EscapeXml("]]>"), "]]&gt;");
}

TEST(EscapeXml, ReplacesWhatXmlCannotHold) {
  EXPECT_EQ(EscapeXml(std::string("a\0b\tc\nd\x1b", 8)), "a b c d ");
  EXPECT_EQ(EscapeXml("a\uFFFE\uFFFFb\uFFFC"), "a\uFFFD\uFFFDb\uFFFC");
  EXPECT_EQ(EscapeXml("\xef\xbf"), "\xef\xbf");  // cut: the caller's to keep UTF-8
}

TEST(SvgColour, Repeats) {
  EXPECT_STREQ(SvgColour(0), SvgColour(8));
  EXPECT_STREQ(SvgColour(-1), SvgColour(7));
  EXPECT_STRNE(SvgColour(0), SvgColour(1));
}

}  // namespace
}  // namespace skein
