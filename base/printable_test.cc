#include "base/printable.h"

#include <string>

#include "gtest/gtest.h"

namespace skein {
namespace {

TEST(PrintableTest, LeavesTextAsItIs) {
  EXPECT_EQ(Printable("rank 3 on knoten-übung: größer als 日本 🧵 \"quoted\" \\ %d"),
            "rank 3 on knoten-übung: größer als 日本 🧵 \"quoted\" \\ %d");
  EXPECT_EQ(Printable(""), "");
}

TEST(PrintableTest, EscapesWhatATerminalObeys) {
  EXPECT_EQ(Printable("a\nb\r\x1b[31mred\x7f"), "a\\x0ab\\x0d\\x1b[31mred\\x7f");
  EXPECT_EQ(Printable(std::string("nul\0!", 5)), "nul\\x00!");
  EXPECT_EQ(Printable("\u009b31m"), "\\xc2\\x9b31m");       // C1: control sequence introducer
  EXPECT_EQ(Printable("\u202etxt"), "\\xe2\\x80\\xaetxt");  // right-to-left override
  EXPECT_EQ(Printable("\u2028"), "\\xe2\\x80\\xa8");
}

TEST(PrintableTest, EscapesBytesThatAreNoUtf8) {
  EXPECT_EQ(Printable("\xff\x80"), "\\xff\\x80");
  EXPECT_EQ(Printable("\xc0\xaf"), "\\xc0\\xaf");                    // not the shortest form
  EXPECT_EQ(Printable("\xed\xa0\x80"), "\\xed\\xa0\\x80");           // a surrogate
  EXPECT_EQ(Printable("\xf4\x90\x80\x80"), "\\xf4\\x90\\x80\\x80");  // beyond U+10FFFF
  EXPECT_EQ(Printable("ab\xe2\x82"), "ab\\xe2\\x82");                // ends too early
}

TEST(PrintableTest, LinesMayStay) {
  EXPECT_EQ(PrintableLines("a\n b\r\n", 100), "a\n b\\x0d\n");
  EXPECT_EQ(PrintableLines("123456\n789", 8), "12345...");
}

TEST(PrintableTest, CutsBetweenCharacters) {
  EXPECT_EQ(Printable("12345678", 8), "12345678");
  EXPECT_EQ(Printable("123456789", 8), "12345...");
  EXPECT_EQ(Printable("1234ü6789", 8), "1234...");
  EXPECT_EQ(Printable("123\n45678", 8), "123...");
  for (size_t length = 0; length < 40; ++length) {
    const std::string cut = Printable(std::string(length, '\n'), 16);
    EXPECT_LE(cut.size(), 16u);
    EXPECT_EQ(cut.ends_with("..."), length > 4) << length;
  }
}

TEST(PrintableTest, DoesNotReadAllOfALongText) {
  // A gigabyte takes no time: an address range that nobody may read stands for it.
  const std::string text(64, 'x');
  EXPECT_EQ(Printable({text.data(), size_t{1} << 40}, 16), "xxxxxxxxxxxxx...");
}

}  // namespace
}  // namespace skein
