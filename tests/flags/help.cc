#include "tests/flags/help.h"

#include <algorithm>
#include <sstream>
#include <string_view>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/flags/run.h"

namespace skein::testing {
namespace {

// Descriptions, which may begin with a flag where they are broken, stand much farther right.
constexpr size_t kMostIndentation = 6;

// "-t,--temperature FLOAT  0 takes ..." has one long name; "--overlap,--no-overlap{false}" has two.
void AddLongNames(std::string_view line, std::vector<std::string>& names) {
  while (line.starts_with("-")) {
    const size_t end = std::min(line.find_first_of(" ,{="), line.size());
    if (line.starts_with("--")) names.emplace_back(line.substr(0, end));
    line.remove_prefix(end);
    if (line.starts_with("{")) line.remove_prefix(std::min(line.find('}'), line.size() - 1) + 1);
    if (!line.starts_with(",")) return;
    line.remove_prefix(std::min(line.find_first_not_of(", "), line.size()));
  }
}

void AddFlagsOf(const std::string& program, const std::string& command, std::vector<Flag>& flags) {
  const Outcome outcome = Run(program, absl::StrCat(command, " --help"));
  const Help help = ParseHelp(outcome.out);
  EXPECT_FALSE(help.flags.empty())
      << program << " " << command << " --help says nothing: " << outcome.out << outcome.err;
  for (const std::string& name : help.flags) flags.push_back({command, name});
  for (const std::string& word : help.subcommands) {
    AddFlagsOf(program, command.empty() ? word : absl::StrCat(command, " ", word), flags);
  }
}

}  // namespace

Help ParseHelp(const std::string& text) {
  Help help;
  bool used = false;
  bool subcommands = false;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("Usage:") && std::exchange(used, true)) break;
    const size_t indentation = std::min(line.find_first_not_of(' '), line.size());
    const std::string_view words = std::string_view(line).substr(indentation);
    if (indentation == 0) {
      subcommands = absl::EqualsIgnoreCase(line, "subcommands:");
    } else if (indentation > kMostIndentation) {
      continue;
    } else if (subcommands) {
      help.subcommands.emplace_back(words.substr(0, words.find(' ')));
    } else {
      AddLongNames(words, help.flags);
    }
  }
  return help;
}

std::vector<Flag> FlagsOf(const std::string& program) {
  std::vector<Flag> flags;
  AddFlagsOf(program, "", flags);
  return flags;
}

}  // namespace skein::testing
