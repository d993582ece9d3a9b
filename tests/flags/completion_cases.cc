// What bash's completion offers, held against --help.
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/flags/flag_cases.h"
#include "tests/flags/run.h"

namespace skein::testing {

std::vector<std::string> Completed(const std::string& program, const std::string& line) {
  const std::string name = program.substr(program.rfind('/') + 1);
  const std::string script = NewPath("complete");
  const Outcome made = Run(program, "--help-completion=bash");
  EXPECT_TRUE(made.ok()) << made.err;
  // A line's last word is the one that is completed; "=" is a word, as bash parts them.
  std::ofstream(script) << made.out << "COMP_WORDS=(" << line << ")\n"
                        << "COMP_CWORD=$((${#COMP_WORDS[@]} - 1))\n_" << name
                        << "\nprintf '%s\\n' \"${COMPREPLY[@]}\"\n";
  const Outcome outcome = Run("bash", script);
  EXPECT_EQ(outcome.err, "");
  return absl::StrSplit(outcome.out, '\n', absl::SkipEmpty());
}

void CompletesEachFlag(const std::string& program) {
  const std::string name = program.substr(program.rfind('/') + 1);
  std::map<std::string, std::vector<std::string>> flags;
  for (const Flag& flag : FlagsOf(program)) flags[flag.command].push_back(flag.name);
  for (const auto& [command, names] : flags) {
    EXPECT_THAT(Completed(program, absl::StrCat(name, " ", command, " --")),
                ::testing::UnorderedElementsAreArray(names))
        << command;
  }
}

}  // namespace skein::testing
