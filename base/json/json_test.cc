#include "base/json/json.h"

#include <string>

#include "base/test_util.h"

namespace skein {
namespace {

using ::testing::HasSubstr;

TEST(JsonTest, ReadsATree) {
  SKEIN_ASSERT_OK_AND_ASSIGN(nlohmann::json tree,
                             ParseJson(R"({"a": [1, {"a": "\u00e4"}], "b": 2.5})"));
  EXPECT_EQ(tree["a"][1]["a"], "\xc3\xa4");
  EXPECT_EQ(tree["b"], 2.5);
  SKEIN_EXPECT_OK(ParseJson(std::string(64, '[') + std::string(64, ']')));
}

// Arrays, objects and what is in them count; keys do not.
TEST(JsonTest, CountsValues) {
  const std::string text = R"({"a": [1, 2], "b": {}})";
  SKEIN_EXPECT_OK(ParseJson(text, {.max_values = 5}));
  EXPECT_THAT(ParseJson(text, {.max_values = 4}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("more than 4 values")));
}

TEST(JsonTest, RefusesWithAReason) {
  std::string wide = "[0";
  for (int i = 0; i < 100; ++i) wide += ",0";
  const struct {
    std::string text;
    const char* says;
  } kCases[] = {
      {"", "bad JSON at offset 0: parse error at line 1"},
      {"{", "bad JSON at offset 1: "},
      {"{} {}", "bad JSON at offset 3: "},
      {std::string("{}\0{}", 5), "bad JSON at offset 2: a zero byte"},
      {"\"\xc3\"", "bad JSON at offset 2: "},
      {"[1e999]", "bad JSON at offset 6: "},
      {R"({"a": 1, "a": 1})", "bad JSON at offset 11: key 'a' appears twice"},
      {"{\"a\": 1,\n\n \"a\": 1}", "line 3: bad JSON at offset 13: key 'a' appears twice"},
      {R"([{"b": {"c": 1, "d": 2, "c": 3}}])", "key 'c' appears twice"},
      {std::string(65, '[') + std::string(65, ']'), "bad JSON at offset 64: nested deeper than 64"},
      {std::string(10 << 20, '['), "nested deeper than 64"},
      {wide + "]", "bad JSON at offset 200: more than 100 values"},
  };
  for (const auto& test : kCases) {
    const absl::Status status = ParseJson(test.text, {.max_values = 100}).status();
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(test.says)));
    EXPECT_LT(status.message().size(), 300u);
  }
}

}  // namespace
}  // namespace skein
