// What commands that write GGUF files have in common.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "CLI/CLI.hpp"

namespace skein::client {

// Adds OUT and --split to a command.
void DeclareGgufOutput(CLI::App& command, std::string& out, int64_t& max_file_bytes);

// Shows on a terminal how far it is.
std::function<void(int64_t written, int64_t all)> GgufProgress();

}  // namespace skein::client
