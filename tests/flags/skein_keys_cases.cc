// What the flags of `skein keys` do.
#include <sys/stat.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "base/file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/flags/ask.h"
#include "tests/flags/flag_cases.h"
#include "tests/flags/run.h"
#include "tests/flags/skein_cases.h"

namespace skein::testing {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::Not;

Outcome Keys(const std::string& arguments) { return Run(kSkein, "keys " + arguments); }

// A key that is added is in the file with its limit, and not itself; it is listed and removed.
void Limit(const std::string& flag, const std::string& setting) {
  const std::string file = NewPath("keys");
  const Outcome added = Keys(absl::StrCat("add ", file, " alice ", flag, "=123"));
  EXPECT_EQ(added.exit_code, 0) << added.err;
  EXPECT_THAT(added.out, MatchesRegex("sk-skein-[A-Za-z0-9_-]{43}\n"));
  EXPECT_THAT(added.err, HasSubstr("not shown again"));
  EXPECT_EQ(Keys(absl::StrCat("add ", file, " bob")).exit_code, 0);
  const std::string written = ReadFileOrEmpty(file);
  EXPECT_THAT(written, MatchesRegex(absl::StrCat("alice sha256:[0-9a-f]{64} ", setting,
                                                 "=123\nbob sha256:[0-9a-f]{64}\n")));
  EXPECT_THAT(written, Not(HasSubstr("sk-skein")));
  struct stat info;
  ASSERT_EQ(stat(file.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);

  const Outcome listed = Keys("list " + file);
  EXPECT_THAT(listed.out, HasSubstr("\nalice "));
  EXPECT_THAT(listed.out, HasSubstr(" 123 "));
  EXPECT_THAT(listed.out, HasSubstr("\nbob "));

  const Outcome twice = Keys(absl::StrCat("add ", file, " bob"));
  EXPECT_EQ(twice.exit_code, 1);
  EXPECT_EQ(twice.out, "");
  EXPECT_THAT(twice.err, EndsWith("there is a key of bob already\n"));
  EXPECT_EQ(Keys(absl::StrCat("remove ", file, " alice")).exit_code, 0);
  EXPECT_THAT(ReadFileOrEmpty(file), MatchesRegex("bob sha256:[0-9a-f]{64}\n"));
  EXPECT_EQ(Keys(absl::StrCat("remove ", file, " alice")).exit_code, 1);
}

}  // namespace

FlagCases KeysCases() {
  FlagCases cases;
  for (const char* const command : {"keys", "keys add", "keys list", "keys remove"}) {
    cases.push_back(HelpCase(kSkein, command));
  }
  for (const std::string setting : {"requests-per-minute", "tokens-per-minute", "streams"}) {
    const std::string flag = "--" + setting;
    cases.push_back({{"keys add", flag}, [flag, setting] { Limit(flag, setting); }});
  }
  return cases;
}

}  // namespace skein::testing
