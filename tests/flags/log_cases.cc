#include "tests/flags/log_cases.h"

#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/flags/flag_cases.h"
#include "tests/flags/run.h"

namespace skein::testing {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kInfo[] = " I [^ ]+ [a-z]+.* [|] ";

// Lines that stand for themselves, whatever a launcher adds.
void Format(const RunLogging& run) {
  EXPECT_THAT(run({}), ContainsRegex(kInfo));
  const std::string said = run({"--log-format=json"});
  EXPECT_THAT(said, ContainsRegex("(^|\n)[{]\"time\":\"20[^\"]*Z\",\"level\":\"info\",\"host\":"
                                  "\"[^\"]+\",\"source\":\"[^\"]+\",\"message\":\"[^\n]*[}]\n"));
  EXPECT_THAT(said, Not(ContainsRegex(kInfo)));
}

using FileOf = std::function<std::string(const std::string&)>;

void File(const RunLogging& run, const FileOf& file_of) {
  const std::string path = NewPath("log") + ".txt";
  EXPECT_THAT(run({"--log-file=" + path}), Not(ContainsRegex(kInfo)));
  EXPECT_THAT(ReadFileOrEmpty(file_of(path)), ContainsRegex(kInfo));
}

// A file that is full already is put by with the first line.
void MaxSize(const RunLogging& run, const FileOf& file_of) {
  const std::string path = NewPath("log") + ".txt";
  const std::string file = file_of(path);
  std::ofstream(file) << std::string(65536, 'x');
  run({"--log-file=" + path});
  EXPECT_FALSE(std::filesystem::exists(file + ".1"));
  run({"--log-file=" + path, "--log-max-size=64KiB"});
  EXPECT_THAT(ReadFileOrEmpty(file + ".1"), HasSubstr("xxx"));
  EXPECT_THAT(ReadFileOrEmpty(file), Not(HasSubstr("xxx")));
}

void Files(const RunLogging& run, const FileOf& file_of) {
  for (const bool kept : {true, false}) {
    const std::string path = NewPath("log") + ".txt";
    const std::string file = file_of(path);
    std::ofstream(file) << std::string(65536, 'x');
    run({"--log-file=" + path, "--log-max-size=64KiB", absl::StrCat("--log-files=", kept ? 2 : 1)});
    EXPECT_EQ(std::filesystem::exists(file + ".1"), kept);
    EXPECT_THAT(ReadFileOrEmpty(file), ContainsRegex(kInfo));
  }
}

}  // namespace

FlagCases LogCases(const RunLogging& run, const FileOf& file_of) {
  return {
      {{"", "--log-format"}, [run] { Format(run); }},
      {{"", "--log-file"}, [run, file_of] { File(run, file_of); }},
      {{"", "--log-max-size"}, [run, file_of] { MaxSize(run, file_of); }},
      {{"", "--log-files"}, [run, file_of] { Files(run, file_of); }},
  };
}

}  // namespace skein::testing
