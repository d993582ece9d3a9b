// The flags of logging, which all programs that log have alike.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tests/flags/flag_cases.h"

namespace skein::testing {

// `run` starts the program with these flags too, ends it, and returns what it said on standard
// error; it logs a line or more at info. `file_of`: what it makes of the name of --log-file.
using RunLogging = std::function<std::string(const std::vector<std::string>& flags)>;
FlagCases LogCases(
    const RunLogging& run, const std::function<std::string(const std::string&)>& file_of =
                               [](const std::string& path) { return path; });

}  // namespace skein::testing
