#include "topology/formats/xml.h"

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "base/test_util.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace skein::topology {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

absl::StatusOr<std::unique_ptr<XmlFile>> Parse(
    std::string_view text, XmlFile::Doctype doctype = XmlFile::Doctype::kRefused) {
  return XmlFile::Parse(text, "root", "a test", doctype);
}

std::string Nested(int depth) {
  std::string text;
  for (int i = 1; i < depth; ++i) text += "<a>";
  for (int i = 1; i < depth; ++i) text += "</a>";
  return absl::StrCat("<root>", text, "</root>");
}

TEST(XmlFileTest, TellsLinesOfElements) {
  constexpr char kText[] =
      "<?xml version=\"1.0\"?>\n<!-- two\nlines -->\n<root>\n  <a\n   "
      "b='&lt;&amp;'/><c/>\n</root>\n";
  SKEIN_ASSERT_OK_AND_ASSIGN(const auto file, Parse(kText));
  EXPECT_EQ(file->Where(file->root()), "line 4: ");
  EXPECT_EQ(file->Where(file->root().child("a")), "line 5: ");
  EXPECT_EQ(file->Where(file->root().child("c")), "line 6: ");
  EXPECT_EQ(PrintableAttribute(file->root().child("a"), "b"), "<&");
}

TEST(XmlFileTest, TakesDoctypesThatDeclareNothing) {
  constexpr char kText[] = "<!DOCTYPE root SYSTEM \"root.dtd\">\n<root/>";
  SKEIN_EXPECT_OK(Parse(kText, XmlFile::Doctype::kNamed));
  EXPECT_THAT(Parse(kText),
              StatusIs(absl::StatusCode::kInvalidArgument, StartsWith("line 1: a <!DOCTYPE")));
  EXPECT_THAT(Parse("\n<!DOCTYPE root [<!ENTITY a 'b'>]><root/>", XmlFile::Doctype::kNamed),
              StatusIs(absl::StatusCode::kInvalidArgument, StartsWith("line 2: a <!DOCTYPE")));
}

TEST(XmlFileTest, HasLimits) {
  std::string attributes;
  for (int i = 0; i < 64; ++i) absl::StrAppend(&attributes, " a", i, "='1'");
  SKEIN_EXPECT_OK(Parse(Nested(64)));
  std::string many;
  for (int i = 0; i < 100; ++i) many += "<a><b><c/></b></a>";
  SKEIN_EXPECT_OK(Parse(absl::StrCat("<root>", many, "</root>")));
  SKEIN_EXPECT_OK(Parse(absl::StrCat("<root", attributes, "/>")));
  SKEIN_EXPECT_OK(Parse("<root>" + std::string((1 << 20) - 13, ' ') + "</root>"));
  const struct {
    std::string text;
    std::string says;
  } cases[] = {
      {"<root>" + std::string((1 << 20) - 12, ' ') + "</root>", "more than a MiB"},
      {Nested(65), "line 1: more than 64 levels"},
      {Nested(100'000), "line 1: more than 64 levels"},
      {absl::StrCat("\n<root", attributes, " b=''/>"), "line 2: more than 64 attributes"},
      {"<root>\n<a b='1' b='2'/></root>", "line 2: 'b' is twice there"},
      {"", "line 1: this is no XML: No document element found"},
      {std::string("<root>\0</root>", 14), "it has bytes of 0"},
      {"<root>\n<a>\n</root>", "line 3: this is no XML: Start-end tags mismatch"},
      {"<root>\n<a", "line 2: this is no XML"},
      {"<toor/>", "line 1: the root is 'toor' and not 'root': this is not a test"},
      {"<root/>\n<root/>", "line 2: a second root"},
      {"<a\001\033b/>", "line 1: "},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(c.text.substr(0, 200));
    EXPECT_THAT(Parse(c.text), StatusIs(absl::StatusCode::kInvalidArgument, StartsWith(c.says)));
  }
}

TEST(XmlFileTest, ChecksNumbersAndMasks) {
  SKEIN_ASSERT_OK_AND_ASSIGN(const auto file,
                             Parse("<root a='7' b='x' c='' d='99999999999999999999' m='3,0' n='g'\n"
                                   " e='1.5' f='-1'/>"));
  const auto get = [&](const char* name) { return file->Integer(file->root(), name, -1, 7); };
  SKEIN_ASSERT_OK(get("a"));
  EXPECT_EQ(*get("a"), 7);
  EXPECT_EQ(*get("f"), -1);
  for (const char* none : {"c", "z"}) EXPECT_EQ(*get(none), std::nullopt) << none;
  for (const char* wrong : {"b", "d", "e"}) {
    EXPECT_THAT(get(wrong), StatusIs(absl::StatusCode::kInvalidArgument,
                                     HasSubstr(" is no number of -1 to 7")));
  }
  EXPECT_THAT(file->Integer(file->root(), "a", 0, 6),
              StatusIs(absl::StatusCode::kInvalidArgument, "line 1: a='7' is no number of 0 to 6"));
  EXPECT_THAT(file->RequiredInteger(file->root(), "c", 0, 6),
              StatusIs(absl::StatusCode::kInvalidArgument, "line 1: <root> without c"));
  EXPECT_THAT(**file->Mask(file->root(), "m"), ElementsAre(32, 33));
  EXPECT_EQ(*file->Mask(file->root(), "z"), std::nullopt);
  EXPECT_THAT(file->Mask(file->root(), "n"),
              StatusIs(absl::StatusCode::kInvalidArgument, StartsWith("line 1: n='g' is no mask")));
}

}  // namespace
}  // namespace skein::topology
