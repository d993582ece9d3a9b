#include "tests/flags/flag_cases.h"

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/version.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/flags/run.h"

namespace skein::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

class FunctionTest : public ::testing::Test {
 public:
  explicit FunctionTest(std::function<void()> body) : body_(std::move(body)) {}
  void TestBody() override { body_(); }

 private:
  const std::function<void()> body_;
};

// "client/skein" is "skein".
std::string NameOf(const std::string& program) { return program.substr(program.rfind('/') + 1); }

std::string Spelled(const Flag& flag) {
  return flag.command.empty() ? flag.name : absl::StrCat(flag.command, " ", flag.name);
}

}  // namespace

void RegisterTest(const std::string& suite, const std::string& name, std::function<void()> body) {
  ::testing::RegisterTest(
      suite.c_str(), name.c_str(), nullptr, nullptr, __FILE__, __LINE__,
      [body = std::move(body)]() -> ::testing::Test* { return new FunctionTest(body); });
}

std::function<void()> RunOnce(std::function<void()> shows) {
  const auto failed = std::make_shared<std::optional<bool>>();
  return [shows = std::move(shows), failed] {
    if (!failed->has_value()) {
      shows();
      *failed = ::testing::Test::HasFailure();
    }
    EXPECT_FALSE(**failed) << "it ran for another flag";
  };
}

std::vector<std::string> TableFaults(const std::vector<Flag>& flags, const FlagCases& cases) {
  std::map<Flag, int> count;
  for (const FlagCase& c : cases) ++count[c.flag];
  std::vector<std::string> faults;
  for (const Flag& flag : flags) {
    const auto found = count.extract(flag);
    if (found.empty()) {
      faults.push_back(absl::StrCat(Spelled(flag), " has no case that shows its effect"));
    } else if (found.mapped() > 1) {
      faults.push_back(absl::StrCat(Spelled(flag), " has ", found.mapped(), " cases"));
    }
  }
  for (const auto& [flag, unused] : count) {
    faults.push_back(absl::StrCat(Spelled(flag), " has a case, and is no flag of the program"));
  }
  return faults;
}

void RegisterFlagTests(const std::string& program, const FlagCases& cases) {
  RegisterTest(NameOf(program), "EachFlagHasACase",
               [program, cases] { EXPECT_THAT(TableFaults(FlagsOf(program), cases), IsEmpty()); });
  RegisterTest(NameOf(program), "CompletionKnowsEachFlag",
               [program] { CompletesEachFlag(program); });
  for (const FlagCase& c : cases) {
    // "skein_bench_serve.tpot_limit": a dash has a meaning in filters.
    std::string suite = NameOf(program);
    if (!c.flag.command.empty()) absl::StrAppend(&suite, " ", c.flag.command);
    RegisterTest(absl::StrReplaceAll(suite, {{" ", "_"}}),
                 absl::StrReplaceAll(c.flag.name.substr(2), {{"-", "_"}}), c.shows);
  }
}

FlagCase HelpCase(const std::string& program, const std::string& command) {
  return {{command, "--help"}, [=] {
            const Outcome outcome = Run(program, absl::StrCat(command, " --help"));
            EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
            const std::string words = command.empty() ? "" : absl::StrCat(" ", command);
            EXPECT_THAT(outcome.out,
                        HasSubstr(absl::StrCat("Usage: ", NameOf(program), words, " [OPTIONS]")));
          }};
}

FlagCase VersionCase(const std::string& program) {
  return {{"", "--version"}, [=] {
            const Outcome outcome = Run(program, "--version");
            EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
            EXPECT_EQ(outcome.out, std::string(kVersion) + "\n");
          }};
}

FlagCases Concatenated(const std::vector<FlagCases>& tables) {
  FlagCases all;
  for (const FlagCases& table : tables) all.insert(all.end(), table.begin(), table.end());
  return all;
}

}  // namespace skein::testing
