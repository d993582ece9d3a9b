// What a hostile template, or a hostile conversation, can make of a thread: an error, soon.
#include <sys/resource.h>

#include <atomic>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/test_util.h"
#include "model/template/chat_template.h"

namespace skein::model {
namespace {

using Json = nlohmann::ordered_json;
using ::testing::AllOf;
using ::testing::HasSubstr;

absl::StatusOr<RenderedText> Render(std::string_view source, const Json& user = {},
                                    const RenderLimits& limits = {}) {
  const auto parsed = ChatTemplate::Parse(source);
  if (!parsed.ok()) return parsed.status();
  return parsed->Render(user, nullptr, absl::UnixEpoch(), limits);
}

std::string Repeated(std::string_view text, int times) {
  std::string out;
  for (int i = 0; i < times; ++i) out += text;
  return out;
}

int64_t PeakBytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return int64_t{usage.ru_maxrss} * 1024;
}

struct Bomb {
  std::string_view source;
  std::string_view limit;  // named by the error
};

class Bombs : public testing::TestWithParam<Bomb> {};

TEST_P(Bombs, EndSoonAndNameTheLimit) {
  const absl::Time begin = absl::Now();
  const auto rendered =
      Render(GetParam().source, {{"u", std::string(1000, 'u')}}, {.memory_bytes = 32 << 20});
  EXPECT_THAT(rendered, StatusIs(absl::StatusCode::kResourceExhausted,
                                 AllOf(HasSubstr("line 1, column "),
                                       HasSubstr(std::string(GetParam().limit)))))
      << GetParam().source;
  EXPECT_LT(absl::Now() - begin, absl::Seconds(60));
  EXPECT_LT(PeakBytes(), int64_t{1} << 30) << GetParam().source;
}

constexpr std::string_view kSteps = "10000000 steps";
constexpr std::string_view kMemory = "33554432 bytes";

INSTANTIATE_TEST_SUITE_P(
    Limits, Bombs,
    testing::Values(
        Bomb{"{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
             kSteps},
        Bomb{"{{ 'x' * 10**9 }}", kMemory}, Bomb{"{{ 'x' * 9223372036854775807 }}", kMemory},
        Bomb{"{{ [1] * 10**9 }}", kMemory},
        Bomb{"{{ ([''] * 100000)|join('x' * 100000) }}", kMemory},
        Bomb{"{% set ns = namespace(x='x' * 1000) %}{% for i in range(40) %}{% set ns.x = ns.x + "
             "ns.x %}{% endfor %}",
             kMemory},
        Bomb{"{% set ns = namespace(x='x' * 1000) %}{% for i in range(40) %}{% set ns.x = ns.x ~ "
             "ns.x %}{% endfor %}",
             kMemory},
        Bomb{"{% set ns = namespace(x=[1]) %}{% for i in range(40) %}{% set ns.x = ns.x + ns.x "
             "%}{% endfor %}",
             kMemory},
        Bomb{"{% set ns = namespace(x=[1]) %}{% for i in range(40) %}{% set ns.x = [ns.x, ns.x] "
             "%}{% endfor %}{{ ns.x }}",
             ""},
        Bomb{"{% set ns = namespace(x=[1]) %}{% for i in range(40) %}{% set ns.x = [ns.x, ns.x] "
             "%}{% endfor %}{{ ns.x|tojson }}",
             ""},
        Bomb{"{% set ns = namespace(x=[1], y=[1]) %}{% for i in range(40) %}{% set ns.x = [ns.x, "
             "ns.x] %}{% set ns.y = [ns.y, ns.y] %}{% endfor %}{{ ns.x == ns.y }}",
             kSteps},
        Bomb{"{% set ns = namespace(x=[]) %}{% for i in range(9999) %}{% set ns.x = [ns.x] %}{% "
             "endfor %}",
             "more than 100 deep"},
        Bomb{"{% set ns = namespace(x={}) %}{% for i in range(9999) %}{% set ns.x = {'a': ns.x} "
             "%}{% endfor %}",
             "more than 100 deep"},
        Bomb{"{{ ('x' * 100000).replace('x', 'y' * 100000) }}", kMemory},
        Bomb{"{{ ('x' * 100000)|replace('', 'y' * 100000) }}", kMemory},
        Bomb{"{{ 'x'.center(10**12) }}", kMemory}, Bomb{"{{ 'x'.ljust(10**18, 'é') }}", kMemory},
        Bomb{"{{ '7'.zfill(10**12) }}", kMemory}, Bomb{"{{ '%1000000000d' % 1 }}", kMemory},
        Bomb{"{{ '{:1000000000}'.format(1) }}", kMemory},
        Bomb{"{{ '%*s' % (10**9, 'x') }}", kMemory},
        Bomb{"{{ ('a\\n' * 100000)|indent(100000) }}", kMemory},
        Bomb{"{{ 'a'|indent(10**12) }}", kMemory},
        Bomb{"{{ ([1] * 100000)|tojson(indent=100000) }}", kMemory},
        Bomb{"{{ ([1] * 100000)|tojson(separators=('x' * 100000, ':')) }}", kMemory},
        Bomb{"{{ [1]|batch(10**12, 1)|list }}", kMemory},
        Bomb{"{{ [1]|slice(10**12)|list }}", kSteps},
        Bomb{"{{ [1]|slice(9223372036854775807)|list }}", kSteps},
        Bomb{"{{ range(10**9) }}", "a range of more than 100000"},
        Bomb{"{{ ((u * 10000)|list)|length }}", ""},
        Bomb{"{% for i in range(99999) %}{{ u * 100 }}{% endfor %}",
             "renders more than 16777216 bytes"},
        Bomb{"{% set x %}{% for i in range(99999) %}{{ u * 100 }}{% endfor %}{% endset %}",
             "16777216 bytes"},
        Bomb{"{% for i in range(99999) %}{{ (u * 10000).find('v') }}{% endfor %}", kSteps},
        Bomb{"{% for i in range(99999) %}{{ (u * 10000)[-1] }}{% endfor %}", kSteps},
        Bomb{"{% macro m(n) %}{{ m(n) }}{% endmacro %}{{ m(1) }}", "800 deep"},
        Bomb{"{% macro m() %}{% call m() %}{% endcall %}{{ caller }}{% endmacro %}{{ m() }}",
             "800 deep"},
        Bomb{"{% for x in [[]] recursive %}{{ loop([[]]) }}{% endfor %}", "800 deep"},
        Bomb{"{% set ns = namespace() %}{% set ns.x = ns %}{{ ns }}", "800 deep"},
        Bomb{"{% set ns = namespace(x=[]) %}{% for i in range(9999) %}{% set ns.x = [ns.x].index "
             "%}{% endfor %}",
             "more than 100 deep"},
        Bomb{"{% macro m(l) %}{{ m(l, *l) ~ varargs }}{% endmacro %}{{ m([1] * 300000) }}",
             kMemory},
        Bomb{"{% macro m(t) %}{{ t ~ m(t ~ '') }}{% endmacro %}{{ m('x' * 3000000) }}", ""},
        Bomb{"{% macro m() %}{% endmacro %}{% for i in range(99999) %}{% for j in range(99) %}{% "
             "set x = i %}{% macro n() %}{% endmacro %}{% endfor %}{% endfor %}",
             kMemory},
        Bomb{
            "{% set a = 'a' * 1000000 %}{% for i in range(99999) %}{% if (a ~ 'b') in a %}{% endif "
            "%}{{ a.find('a' * 500000 ~ 'b') }}{{ a.rfind('b' ~ 'a' * 500000) }}{% endfor %}",
            kSteps},
        Bomb{"{% set a = 'a' * 1000000 %}{% for i in range(99999) %}{{ a.startswith(a) }}{{ "
             "a.strip('b' * 1000)|length }}{% endfor %}",
             kSteps},
        Bomb{"{% set a = 'a' * 1000000 %}{% for i in range(99999) %}{{ {'b': 1}[a] }}{{ '%.1s' % a "
             "}}{% endfor %}",
             kSteps},
        Bomb{"{% set ns = namespace() %}{% for i in range(99999) %}{% set ns.x = namespace(a=ns.x, "
             "b=i) %}{% endfor %}{{ ns.x }}",
             ""}));

TEST(Limits, EachIsTheCallers) {
  const Json user = {{"u", "text of the user"}};
  const std::string source = "{% for i in range(20) %}{{ u }}{{ [[i]] }}{% endfor %}";
  SKEIN_EXPECT_OK(Render(source, user));
  EXPECT_THAT(Render(source, user, {.steps = 50}),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("more than 50 steps")));
  EXPECT_THAT(Render(source, user, {.depth = 3}),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("more than 3 deep")));
  EXPECT_THAT(Render(source, user, {.output_bytes = 300}),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("more than 300 bytes")));
  EXPECT_THAT(Render(source, user, {.memory_bytes = 500}),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("more than 500 bytes")));
}

// Memory that is free again does not count.
TEST(Limits, MemoryIsWhatLivesAtATime) {
  const std::string source =
      "{% for i in range(2000) %}{% set x = 'x' * 50000 %}{% set y = [x, x ~ x] %}{% endfor %}ok";
  const auto rendered = Render(source, {}, {.memory_bytes = 1 << 20});
  SKEIN_ASSERT_OK(rendered);
  EXPECT_EQ(rendered->text, "ok");
}

TEST(Limits, DeepSourcesAreRefused) {
  struct Nesting {
    std::string begin, middle, end;
  };
  for (const auto& [begin, middle, end] : std::vector<Nesting>{{"(", "1", ")"},
                                                               {"[", "1", "]"},
                                                               {"{1: ", "1", "}"},
                                                               {"not ", "1", ""},
                                                               {"-", "1", ""},
                                                               {"", "1", "+1"},
                                                               {"", "1", "|int"},
                                                               {"", "x", ".x"},
                                                               {"", "x", "[0]"},
                                                               {"", "x", "()"},
                                                               {"", "1", " if 1 else 1"},
                                                               {"1 if 1 else ", "1", ""},
                                                               {"x(", "1", ")"},
                                                               {"x[", "1", "]"},
                                                               {"1 and ", "1", ""},
                                                               {"", "1", " or 1"},
                                                               {"2 ** ", "1", ""},
                                                               {"", "x", " is none"}}) {
    const int times = 100'000;
    SCOPED_TRACE(begin + middle + end);
    std::string source = "{{ ";
    for (int i = 0; i < times; ++i) source += begin;
    source += middle;
    for (int i = 0; i < times; ++i) source += end;
    source += " }}";
    if (source.size() > (1 << 20)) source.resize(1 << 20);
    EXPECT_THAT(ChatTemplate::Parse(source),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("line 1, column ")));
  }
  for (const std::string block : {"if 1", "for x in y", "macro m()", "filter upper", "set x",
                                  "call x()", "with", "generation"}) {
    EXPECT_THAT(
        ChatTemplate::Parse(Repeated("{% " + block + " %}", 50'000)),
        StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("blocks inside each other")));
  }
  EXPECT_THAT(ChatTemplate::Parse("{% for " + Repeated("(", 100'000)),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("line 1")));
  EXPECT_THAT(ChatTemplate::Parse(std::string((1 << 20) + 1, 'x')),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("1048577 bytes")));
}

TEST(Limits, LongSourcesAreParsedInLinearTime) {
  const absl::Time begin = absl::Now();
  SKEIN_EXPECT_OK(ChatTemplate::Parse("{{ [" + Repeated("1, ", 300'000) + "] }}"));
  SKEIN_EXPECT_OK(ChatTemplate::Parse(Repeated("{{x}}", 200'000)));
  SKEIN_EXPECT_OK(ChatTemplate::Parse(Repeated("{#", 500'000) + "#}"));
  SKEIN_EXPECT_OK(ChatTemplate::Parse("{{ x" + Repeated(" ~ x", 200'000) + " }}"));
  EXPECT_LT(absl::Now() - begin, absl::Seconds(30));
}

TEST(Limits, DeepJsonIsRefused) {
  Json deep = "x";
  for (int i = 0; i < 1000; ++i) deep = Json::array({deep});
  EXPECT_THAT(Render("{{ x }}", {{"x", deep}}),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("deep")));
  SKEIN_EXPECT_OK(Render("{{ y }}", {{"x", deep}}));  // nobody looks at it
}

TEST(Limits, ValuesThatPythonHasAndWeHaveNot) {
  EXPECT_THAT(Render("{{ x }}", {{"x", 18446744073709551615u}}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("beyond 64 bits")));
  EXPECT_THAT(
      Render("{{ 9223372036854775807 + 1 }}"),
      StatusIs(absl::StatusCode::kOutOfRange, HasSubstr("column 24: an integer is beyond")));
  EXPECT_THAT(Render("{{ 10 ** 19 }}"), StatusIs(absl::StatusCode::kOutOfRange, HasSubstr("64")));
  EXPECT_THAT(Render("{{ (-9223372036854775807 - 1) // -1 }}"),
              StatusIs(absl::StatusCode::kOutOfRange, HasSubstr("64")));
  EXPECT_THAT(Render("{{ -(-9223372036854775807 - 1) }}"),
              StatusIs(absl::StatusCode::kOutOfRange, HasSubstr("64")));
  EXPECT_THAT(Render("{{ 1e300|int }}"), StatusIs(absl::StatusCode::kOutOfRange, HasSubstr("64")));
  EXPECT_THAT(Render("{{ '9999999999999999999'|int }}"),
              StatusIs(absl::StatusCode::kOutOfRange, HasSubstr("64")));
  EXPECT_THAT(Render("{{ x }}", {{"x", "\xff"}}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("not UTF-8")));
  EXPECT_THAT(Render("{{ x }}", {{"x", {{"\xff", 1}}}}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("not UTF-8")));
  EXPECT_THAT(Render("{{ x }}", Json::array()),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("no object")));
}

TEST(ChatTemplate, ManyThreadsRenderOne) {
  SKEIN_ASSERT_OK_AND_ASSIGN(
      const auto parsed,
      ChatTemplate::Parse("{% macro m(x) %}<{{ x|upper }}>{% endmacro %}"
                          "{% set ns = namespace(n=0) %}{% for i in range(200) %}"
                          "{% set ns.n = ns.n + i %}{{ m(u ~ 'lit') }}{% endfor %}{{ ns.n }}"));
  std::atomic<int> right = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&, t] {
      const std::string name(1, static_cast<char>('a' + t));
      std::string wanted;
      for (int i = 0; i < 200; ++i)
        wanted += "<" + std::string(1, static_cast<char>('A' + t)) + "LIT>";
      wanted += "19900";
      for (int i = 0; i < 20; ++i) {
        const auto rendered = parsed.Render({{"u", name}}, nullptr, absl::UnixEpoch());
        right += rendered.ok() && rendered->text == wanted && rendered->user.size() == 200 ? 1 : 0;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(right, 160);
}

}  // namespace
}  // namespace skein::model
