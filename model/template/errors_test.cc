// Errors name their line and column, and what is wrong there.
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "absl/time/time.h"
#include "base/test_util.h"
#include "model/template/chat_template.h"

namespace skein::model {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

struct Case {
  std::string_view source;
  std::string_view message;
};

class ParseErrors : public testing::TestWithParam<Case> {};

TEST_P(ParseErrors, NameTheirPlace) {
  EXPECT_THAT(
      ChatTemplate::Parse(GetParam().source),
      StatusIs(absl::StatusCode::kInvalidArgument, StartsWith(std::string(GetParam().message))))
      << GetParam().source;
}

INSTANTIATE_TEST_SUITE_P(
    Sources, ParseErrors,
    testing::Values(
        Case{"{{ 1 + }}", "line 1, column 8: expected an expression, found '}}'"},
        Case{"a\nb {{ x y }}", "line 2, column 8: expected '}}', found 'y'"},
        Case{"é世 {{ $ }}", "line 1, column 7: unexpected '$'"},
        Case{"\r\n\r\n{% if x %}", "line 3, column 11: expected 'endif', found the template's end"},
        Case{"{{ x|nosuch }}", "line 1, column 6: no filter is named 'nosuch'"},
        Case{"{{ x is\n nosuch }}", "line 2, column 2: no test is named 'nosuch'"},
        Case{"{% include 'x' %}", "line 1, column 4: the tag 'include' is not supported"},
        Case{"{% import 'x' as y %}", "line 1, column 4: the tag 'import' is not supported"},
        Case{"{% from 'x' import y %}", "line 1, column 4: the tag 'from' is not supported"},
        Case{"{% extends 'x' %}", "line 1, column 4: the tag 'extends' is not supported"},
        Case{"{% block x %}{% endblock %}", "line 1, column 4: the tag 'block' is not supported"},
        Case{"{% autoescape true %}{% endautoescape %}",
             "line 1, column 4: the tag 'autoescape' is not supported"},
        Case{"{% trans %}{% endtrans %}", "line 1, column 4: the tag 'trans' is not supported"},
        Case{"{%- nosuch %}", "line 1, column 5: no tag is named 'nosuch'"},
        Case{"{{ 'abc }}", "line 1, column 4: a string has no end"},
        Case{"x{# abc", "line 1, column 4: a comment has no end"},
        Case{"{% raw %}abc", "line 1, column 1: a raw block has no end"},
        Case{"{{ 99999999999999999999 }}", "line 1, column 4: an integer is beyond 64 bits"},
        Case{"{{ '\\ud800' }}", "line 1, column 4: an escape of a string names no character"},
        Case{"{{ '\\N{DASH}' }}", "line 1, column 4: characters by their names"},
        Case{"{{ (1] }}", "line 1, column 6: unexpected ']'"},
        Case{"{% break %}", "line 1, column 4: 'break' outside of a loop"},
        Case{"{% set loop_ %}", "line 1, column 16: expected 'endset'"},
        Case{"{% set none = 1 %}", "line 1, column 8: cannot assign to 'none'"},
        Case{"abc\xff", "line 1, column 4: the template is not UTF-8"}));

class RenderErrors : public testing::TestWithParam<Case> {};

TEST_P(RenderErrors, NameTheirPlace) {
  SKEIN_ASSERT_OK_AND_ASSIGN(const auto parsed, ChatTemplate::Parse(GetParam().source));
  EXPECT_THAT(parsed.Render({{"u", "x"}, {"d", {{"k", 1}}}}, nullptr, absl::UnixEpoch()),
              StatusIs(absl::StatusCode::kInvalidArgument, std::string(GetParam().message)))
      << GetParam().source;
}

INSTANTIATE_TEST_SUITE_P(
    Sources, RenderErrors,
    testing::Values(
        Case{"\n {{ nosuch() }}", "line 2, column 5: 'nosuch' is undefined"},
        Case{"{{ nosuch.x }}", "line 1, column 11: 'nosuch' is undefined"},
        Case{"{{ d.k.x.y }}", "line 1, column 10: a int has no attribute 'x'"},
        Case{"{{ d.nosuch.x }}", "line 1, column 13: a dict has no attribute 'nosuch'"},
        Case{"{{ u + 1 }}", "line 1, column 6: '+' is not for a str and a int"},
        Case{"{{ u.nosuch() }}", "line 1, column 6: a str has no attribute 'nosuch'"},
        Case{"{{ d.update(d) }}",
             "line 1, column 6: 'update' would change a dict, which templates may not"},
        Case{"a\n\n{% for x in 5 %}\n{% endfor %}",
             "line 3, column 13: a int has no items to go through"},
        Case{"{% for a, b in [[1]] %}{% endfor %}", "line 1, column 8: 1 values for 2 names"},
        Case{"{% if true %}\n{{ u|nosuch }}{% endif %}",
             "line 2, column 6: no filter is named 'nosuch'"},
        Case{"{% macro m(x) %}\n{{ x.y }}{% endmacro %}{{ m(none.x) }}",
             "line 2, column 6: a NoneType has no attribute 'x'"},
        Case{"{% macro m() %}{% endmacro %}{{ m(1) }}",
             "line 1, column 33: macro 'm' takes 0 arguments at most"},
        Case{"{% set u.x = 1 %}", "line 1, column 8: 'u' is no namespace"},
        Case{"{{ d|tojson(nosuch=1) }}", "line 1, column 6: tojson takes no argument 'nosuch'"},
        Case{"{{ [1, nosuch]|tojson }}",
             "line 1, column 16: 'nosuch' is undefined: it has no JSON"},
        Case{"{{ lipsum() }}", "line 1, column 4: 'lipsum' is not supported"},
        Case{"{{ u.upper }}", "line 1, column 4: printing a function is not supported"},
        Case{"{{ 1 // 0 }}", "line 1, column 6: division by zero"},
        // The template's own messages stay as they are.
        Case{"{{ raise_exception('Roles: ' ~ u) }}", "Roles: x"},
        Case{"{% macro m() %}{{ raise_exception('no') }}{% endmacro %}{{ [m()]|map('upper') }}",
             "no"}));

TEST(Errors, ATemplateOfOneLineKnowsItsColumns) {
  const std::string source = "{% if true %}" + std::string(5000, 'x') + "{% endif %}{{ 1 + none }}";
  SKEIN_ASSERT_OK_AND_ASSIGN(const auto parsed, ChatTemplate::Parse(source));
  EXPECT_THAT(parsed.Render({}, {}, absl::UnixEpoch()),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("line 1, column 5030: ")));
}

}  // namespace
}  // namespace skein::model
