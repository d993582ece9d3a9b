#pragma once

#include <string>

#include "CLI/CLI.hpp"
#include "base/log/log_options.h"

namespace skein {

// Adds --log-level, --log-format, --log-file, --log-max-size and --log-files. `file_of` says in
// words what is made of --log-file, where that is not its name as it stands: "".
void AddLogging(CLI::App& app, LogOptions& options, const std::string& file_of = "");

}  // namespace skein
