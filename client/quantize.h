// skein quantize
#pragma once

#include <cstdint>
#include <limits>
#include <string>

#include "CLI/CLI.hpp"

namespace skein::client {

struct QuantizeFlags {
  std::string model;
  std::string out;
  std::string type = "Q4_K_M";
  std::string importance_file;  // "": none
  int threads = 0;              // 0: the cores that this process may use
  int64_t max_file_bytes = std::numeric_limits<int64_t>::max();
};

void DeclareQuantize(CLI::App& command, QuantizeFlags& flags);

// Writes a model as a GGUF file of blocks; says what became of which types, and shows progress on a
// terminal. Returns the exit code.
int Quantize(const QuantizeFlags& flags);

}  // namespace skein::client
