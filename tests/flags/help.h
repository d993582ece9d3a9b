// The flags that a program itself says it has.
#pragma once

#include <string>
#include <vector>

namespace skein::testing {

struct Help {
  std::vector<std::string> flags;  // long names, negated ones included, in the order of the help
  std::vector<std::string> subcommands;
};

// Reads what CLI11 prints for --help. The help of another program that follows is passed over.
Help ParseHelp(const std::string& text);

struct Flag {
  std::string command;  // the words behind the program's name, like "bench serve"
  std::string name;     // "--seed"

  auto operator<=>(const Flag&) const = default;
};

// All flags of a program and of its subcommands, by --help of each.
std::vector<Flag> FlagsOf(const std::string& program);

}  // namespace skein::testing
