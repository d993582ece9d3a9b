// What shells need to complete a program's command line, made from what --help is made from.
#pragma once

#include <string>

#include "CLI/CLI.hpp"
#include "absl/status/statusor.h"

namespace skein {

// A script for bash, zsh or fish: commands, flags of each command, their values where they are a
// few words, and files elsewhere. InvalidArgument for another shell.
absl::StatusOr<std::string> CompletionScript(CLI::App& program, const std::string& shell);

}  // namespace skein
