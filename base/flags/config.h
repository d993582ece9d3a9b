// Configuration files: --config and --print-config of every program. The command line beats the
// file, and the file the default.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"

namespace skein {

// Adds the two flags, to commands too that pass no flag on to the program; after all others.
void DeclareConfig(CLI::App& program);

// Whether the command line has the option, once it is parsed: a file may have given it, too.
bool OnCommandLine(const CLI::App& program, const CLI::Option& option);

// What the file that the program has read says to another one.
struct ConfigForOther {
  std::string path;
  std::vector<std::string> keys;
};
// None: there is no file, or it says nothing to `other`.
std::optional<ConfigForOther> FindConfigFor(const CLI::App& program, const std::string& other);

}  // namespace skein
