#include "base/log/log.h"

#include <unistd.h>

#include <array>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/file.h"
#include "base/log/log_fields.h"
#include "base/test_util.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "spdlog/spdlog.h"

namespace skein {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(LogTest, LinesNameHostAndComponentAndRespectTheLevel) {
  std::array<char, 256> host{};
  ASSERT_EQ(gethostname(host.data(), host.size() - 1), 0);
  SKEIN_ASSERT_OK(InitLogging("rank 3 of 100%d", LogOptions{}));
  testing::internal::CaptureStderr();
  spdlog::debug("quiet");
  spdlog::info("loaded {} layers", 8);
  FlushLog();
  const std::string lines = testing::internal::GetCapturedStderr();
  EXPECT_THAT(
      lines,
      AllOf(HasSubstr(absl::StrCat(" I ", host.data(), " rank 3 of 100%d | loaded 8 layers\n")),
            Not(HasSubstr("quiet"))));
}

class Caught {
 public:
  Caught() { testing::internal::CaptureStderr(); }
  std::string Lines() {
    FlushLog();
    return testing::internal::GetCapturedStderr();
  }
};

TEST(LogTest, FieldsStandBehindTheMessageOfTheirThread) {
  SKEIN_ASSERT_OK(InitLogging("x", LogOptions{}));
  Caught caught;
  {
    const LogFields outer = {{"a", "one word"}, {"b", int64_t{-7}}};
    const WithLogFields with_outer(outer);
    {
      const LogFields inner = {{"c", 0.25}, {"d", true}, {"e", "plain"}, {"f", ""}};
      const WithLogFields with_inner(inner);
      spdlog::info("both");
      std::thread([] { spdlog::info("other thread"); }).join();
    }
    spdlog::info("outer");
  }
  spdlog::info("none");
  EXPECT_THAT(caught.Lines(),
              AllOf(HasSubstr("| both a=\"one word\" b=-7 c=0.25 d=true e=plain f=\"\"\n"),
                    HasSubstr("| other thread\n"), HasSubstr("| outer a=\"one word\" b=-7\n"),
                    HasSubstr("| none\n")));
}

// Whatever is in it, a line is one object, and nothing that was said is lost.
TEST(LogTest, JsonIsAnObjectOnEachLine) {
  SKEIN_ASSERT_OK(
      InitLogging("rank \"3\"", LogOptions{.level = "trace", .format = LogOptions::Format::kJson}));
  Caught caught;
  const absl::Time before = absl::Now();
  const LogFields fields = {{"n", int64_t{1} << 40}, {"x", 1.5}, {"ok", false}, {"s", "a\nb"}};
  {
    const WithLogFields with(fields);
    spdlog::warn("{}", "quote \" newline \n and \xff");
  }
  spdlog::debug("second");
  const std::string text = caught.Lines();
  const std::vector<std::string> lines = absl::StrSplit(text, '\n');
  ASSERT_EQ(lines.size(), 3u) << text;
  const auto line = nlohmann::json::parse(lines[0]);
  absl::Time time;
  std::string error;
  ASSERT_TRUE(absl::ParseTime(absl::RFC3339_full, line["time"].get<std::string>(), &time, &error));
  EXPECT_LT(absl::AbsDuration(time - before), absl::Minutes(1));
  EXPECT_EQ(line["level"], "warning");
  EXPECT_EQ(line["source"], "rank \"3\"");
  EXPECT_EQ(line["message"], "quote \" newline \n and \xef\xbf\xbd");
  EXPECT_EQ(line["n"], int64_t{1} << 40);
  EXPECT_EQ(line["x"], 1.5);
  EXPECT_EQ(line["ok"], false);
  EXPECT_EQ(line["s"], "a\nb");
  EXPECT_EQ(line.size(), 9u);  // with the host
  EXPECT_EQ(nlohmann::json::parse(lines[1])["level"], "debug");
}

// Days do not show in the times of standard error, and do in a file, which stays.
TEST(LogTest, AFileHasAllLinesAndStandardErrorTheErrors) {
  const std::string path = absl::StrCat(testing::TempDir(), "/log_test.log");
  Caught caught;
  SKEIN_ASSERT_OK(InitLogging("x", LogOptions{.file = path}));
  spdlog::info("quiet one");
  spdlog::error("loud one");
  EXPECT_THAT(caught.Lines(), AllOf(HasSubstr("loud one\n"), Not(HasSubstr("quiet one"))));
  EXPECT_THAT(ReadFileOrEmpty(path),
              testing::ContainsRegex("^20[0-9-]* [0-9:.]* I [^ ]* x . quiet one\n"
                                     "20[0-9-]* [0-9:.]* E [^ ]* x . loud one\n$"));
  EXPECT_FALSE(InitLogging("x", LogOptions{.file = "/nowhere/x.log"}).ok());
}

TEST(LogTest, AnUnknownLevelIsRefusedByName) {
  EXPECT_THAT(InitLogging("x", LogOptions{.level = "loud"}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("'loud'")));
}

}  // namespace
}  // namespace skein
