#include "parallel/planner/kv_memory.h"

#include <string>

#include "base/test_util.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace skein::plan {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST(ParseKvMemory, TakesFractionsAndBytes) {
  struct Case {
    const char* text;
    KvMemory want;
  };
  const Case cases[] = {
      {"", {}},
      {"0.5", {0.5, 0}},
      {"1", {1, 0}},
      {"1.0", {1, 0}},
      {"0.001", {0.001, 0}},
      {"1B", {0, 1}},
      {"4GiB", {0, int64_t{4} << 30}},
      {"512MiB", {0, int64_t{512} << 20}},
      {"1.5KiB", {0, 1536}},
      {"0.5TiB", {0, int64_t{1} << 39}},
      {"1024TiB", {0, kMaxRankBytes}},
  };
  for (const Case& c : cases) {
    SKEIN_ASSERT_OK_AND_ASSIGN(const KvMemory got, ParseKvMemory(c.text));
    EXPECT_EQ(got, c.want) << c.text;
  }
}

TEST(ParseKvMemory, RefusalsQuoteTheText) {
  struct Case {
    const char* text;
    const char* reason;
  };
  const Case cases[] = {
      {"0", "above 0 and at most 1"},
      {"0.0", "above 0 and at most 1"},
      {"1.01", "above 0 and at most 1"},
      {"50", "above 0 and at most 1"},
      {"50%", "unit \"%\""},
      {"4GB", "unit \"GB\""},
      {"4 GiB", "unit \" GiB\""},
      {"4gib", "unit \"gib\""},
      {"4GiBs", "unit \"GiBs\""},
      {"1e3", "unit \"e3\""},
      {"0x10", "unit \"x10\""},
      {"0GiB", "so many bytes"},
      {"0.5B", "so many bytes"},
      {"1025TiB", "so many bytes"},
      {"-1", "no number"},
      {"-4GiB", "no number"},
      {"+1", "no number"},
      {".5", "no number"},
      {" 1", "no number"},
      {"GiB", "no number"},
      {"inf", "no number"},
      {"nan", "no number"},
  };
  for (const Case& c : cases) {
    EXPECT_THAT(ParseKvMemory(c.text).status(),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         AllOf(StartsWith("KV memory \"" + std::string(c.text) + "\": "),
                               HasSubstr(c.reason), HasSubstr("0.5"), HasSubstr("4GiB"))));
  }
}

TEST(ParseSwapMemory, TakesBytes) {
  for (const auto& [text, want] : {std::pair{"", int64_t{0}},
                                   {"0", int64_t{0}},
                                   {"3B", int64_t{3}},
                                   {"2GiB", int64_t{2} << 30}}) {
    SKEIN_ASSERT_OK_AND_ASSIGN(const int64_t got, ParseSwapMemory(text));
    EXPECT_EQ(got, want) << text;
  }
  for (const auto& [text, reason] : {std::pair{"0.5", "no unit"},
                                     {"1", "no unit"},
                                     {"-1GiB", "no number"},
                                     {"1GB", "unit \"GB\""}}) {
    EXPECT_THAT(ParseSwapMemory(text).status(),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         AllOf(StartsWith("swap memory \"" + std::string(text) + "\": "),
                               HasSubstr(reason), HasSubstr("512MiB"))));
  }
}

}  // namespace
}  // namespace skein::plan
