// Hidden flags by which a package gets its man pages and completion: --help-man DATE and
// --help-completion SHELL.
#pragma once

#include "CLI/CLI.hpp"

namespace skein {

// After all other flags.
void DeclareDocumentation(CLI::App& program);

}  // namespace skein
