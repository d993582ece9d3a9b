// skein convert
#pragma once

#include <cstdint>
#include <limits>
#include <string>

#include "CLI/CLI.hpp"

namespace skein::client {

struct ConvertFlags {
  std::string model;
  std::string out;
  std::string type = "keep";
  int64_t max_file_bytes = std::numeric_limits<int64_t>::max();
};

void DeclareConvert(CLI::App& command, ConvertFlags& flags);

// Writes a model's folder as a GGUF file; says what was written, and shows progress on a terminal.
// Returns the exit code.
int Convert(const ConvertFlags& flags);

}  // namespace skein::client
