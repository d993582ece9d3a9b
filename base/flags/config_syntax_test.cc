#include "base/flags/config_syntax.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace skein {
namespace {

using ::testing::ElementsAre;

// "LINE SECTION/KEY VALUE|VALUE", or the error.
std::vector<std::string> Read(const std::string& text) {
  const auto entries = ParseConfig(text);
  if (!entries.ok()) return {std::string(entries.status().message())};
  std::vector<std::string> said;
  for (const ConfigEntry& entry : *entries) {
    said.push_back(absl::StrCat(entry.line, " ", absl::StrJoin(entry.section, "."), "/", entry.key,
                                entry.list ? " [" : " ", absl::StrJoin(entry.values, "|"),
                                entry.list ? "]" : ""));
  }
  return said;
}

TEST(ConfigSyntaxTest, ReadsSectionsAndKeys) {
  EXPECT_THAT(Read(R"(# comment
a = 1

 [worker]  # a comment
b_c=2
[skein.bench.serve]
  d-e = 3)"),
              ElementsAre("2 /a 1", "5 worker/b_c 2", "7 skein.bench.serve/d-e 3"));
  EXPECT_THAT(Read("\xEF"), ElementsAre("line 1: expected KEY = VALUE, or [SECTION]"));
  EXPECT_THAT(Read(""), ElementsAre());
  EXPECT_THAT(Read("a = 1\r\nb = 2\r\n"), ElementsAre("1 /a 1", "2 /b 2"));
}

TEST(ConfigSyntaxTest, ReadsValues) {
  EXPECT_THAT(Read("a = tp=2,pp=2  # why"), ElementsAre("1 /a tp=2,pp=2"));
  EXPECT_THAT(Read("a = good morrow "), ElementsAre("1 /a good morrow"));
  EXPECT_THAT(Read(R"(a = "x # \"y\" \\ \n"  # why)"), ElementsAre("1 /a x # \"y\" \\ \n"));
  EXPECT_THAT(Read(R"(a = 'C:\x "y"')"), ElementsAre("1 /a C:\\x \"y\""));
  EXPECT_THAT(Read(R"(a = "")"), ElementsAre("1 /a "));
}

TEST(ConfigSyntaxTest, ReadsLists) {
  EXPECT_THAT(Read("a = [1, \"b,]\",c d]"), ElementsAre("1 /a [1|b,]|c d]"));
  EXPECT_THAT(Read("a = []"), ElementsAre("1 /a []"));
  EXPECT_THAT(Read("a = [  # why\n  1,\n  2,\n]\nb = 3"), ElementsAre("1 /a [1|2]", "5 /b 3"));
}

TEST(ConfigSyntaxTest, ErrorsNameTheLine) {
  EXPECT_THAT(Read("\n\na"), ElementsAre("line 3: expected KEY = VALUE, or [SECTION]"));
  EXPECT_THAT(Read("a b = 1"), ElementsAre("line 1: expected KEY = VALUE, or [SECTION]"));
  EXPECT_THAT(Read("\na =\nb = 1"), ElementsAre("line 2: a has no value"));
  EXPECT_THAT(Read("a ="), ElementsAre("line 1: a has no value"));
  EXPECT_THAT(Read("a = 'b"), ElementsAre("line 1: a quote does not end on its line"));
  EXPECT_THAT(Read("a = \"b\\"), ElementsAre("line 1: behind \\ comes one of \", \\, n, t and r"));
  EXPECT_THAT(Read("a = \"b\" c"),
              ElementsAre("line 1: something stands behind what the line says; text with blanks or "
                          "# has quotes"));
  EXPECT_THAT(Read("a = b\"c\""),
              ElementsAre("line 1: text with quotes in it has quotes around it: b\"c\""));
  EXPECT_THAT(Read("a = [1,\n2"), ElementsAre("line 2: a list has no ]"));
  EXPECT_THAT(Read("a = [1\n2]"), ElementsAre("line 2: values of a list are parted by commas"));
  EXPECT_THAT(Read("a = [,]"),
              ElementsAre("line 1: a value is missing; an empty one is written as \"\""));
  EXPECT_THAT(Read("[a"), ElementsAre("line 1: a section is written as [NAME]"));
  EXPECT_THAT(Read("[a..b]"),
              ElementsAre("line 1: a section is written as [NAME] or [NAME.NAME], not [a..b]"));
}

TEST(ConfigSyntaxTest, ReadsWhatItQuotes) {
  for (const std::string value : {"", "plain", "a\"b'c", "\\n\n\t\r", "# [x] = ,", "\xC3\xA4"}) {
    const auto read = ParseConfig("a = " + QuoteConfigValue(value));
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_THAT(read->at(0).values, ElementsAre(value));
  }
}

}  // namespace
}  // namespace skein
