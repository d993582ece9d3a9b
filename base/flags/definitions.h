// What a program's CLI11 definitions hold, as configuration files, man pages and completion go
// through them.
#pragma once

#include <string>
#include <vector>

#include "CLI/CLI.hpp"

namespace skein {

// The programs of Skein, whose sections may lie side by side in a configuration file.
inline constexpr const char* kPrograms[] = {"coordinator", "skein", "supervisor", "worker"};

// Of the command itself and of its groups, hidden ones too, in the order of --help.
std::vector<CLI::Option*> OptionsOf(CLI::App& command);
// Those that --help shows.
std::vector<CLI::Option*> ShownOptionsOf(CLI::App& command);

std::vector<CLI::App*> CommandsOf(CLI::App& command);
CLI::App* FindCommand(CLI::App& command, const std::string& name);  // nullptr: none

// "skein bench serve".
std::string PathOf(const CLI::App& command);

// Whether the option stands alone, without a value.
bool IsSwitch(const CLI::Option& option);

// {"cpu", "reference"} of an option whose type is told as "TEXT:{cpu,reference}"; else empty.
std::vector<std::string> ChoicesOf(const CLI::Option& option);

}  // namespace skein
