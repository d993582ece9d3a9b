// A case for each flag of a program, which shows the flag's effect in a real process.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tests/flags/help.h"

namespace skein::testing {

struct FlagCase {
  Flag flag;
  // Runs the program and fails unless the flag has the effect that its help promises. That a wrong
  // value is refused is none.
  std::function<void()> shows;
};
using FlagCases = std::vector<FlagCase>;

// One case for several flags: it runs once, and fails for each of them where it did.
std::function<void()> RunOnce(std::function<void()> shows);

// What is wrong with the table, each in words: flags without a case, cases without a flag, flags
// with two.
std::vector<std::string> TableFaults(const std::vector<Flag>& flags, const FlagCases& cases);

// A test beside those of flags.
void RegisterTest(const std::string& suite, const std::string& name, std::function<void()> body);

// A test of each case, one of the table, and one of completion. `main` calls it before the tests
// run.
void RegisterFlagTests(const std::string& program, const FlagCases& cases);

// For every command that has it: --help prints the usage of this very command.
FlagCase HelpCase(const std::string& program, const std::string& command);
// --version prints the version with which coordinator and workers compare themselves.
FlagCase VersionCase(const std::string& program);
// --config takes every flag of the program and of its commands from a file; --print-config prints
// each flag that is given, and --config reads what it prints.
FlagCases ConfigCases(const std::string& program);

// What bash's completion of the program offers for a line, of which the last word is completed.
std::vector<std::string> Completed(const std::string& program, const std::string& line);
// Fails unless it offers the very flags that --help shows, for each command.
void CompletesEachFlag(const std::string& program);

// Joins tables.
FlagCases Concatenated(const std::vector<FlagCases>& tables);

}  // namespace skein::testing
