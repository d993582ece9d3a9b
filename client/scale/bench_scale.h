// skein bench scale
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"

namespace skein::client {

struct BenchScaleFlags {
  std::string model = "synthetic:llama3-1b";
  std::vector<int32_t> ranks = {1, 2};
  bool strong = false;
  bool weak = false;
  std::vector<int32_t> batches = {1};
  bool all = false;
  bool prefill = false;
  int64_t prompt_tokens = 128;
  int32_t steps = 64;
  int32_t rounds = 1;
  std::string mpirun;               // further arguments of it
  std::optional<double> max_error;  // in percent
  std::string worker;               // the program; empty: beside this one
  std::string json_file;
  std::string svg_file;
};

void DeclareBenchScale(CLI::App& command, BenchScaleFlags& flags);

// Measures the hosts with each number of ranks, predicts steps of their layouts, prints the
// predictions, and only then measures the steps. Cores are measured again before each layout, which
// is predicted anew, since a host's other work comes and goes; rounds repeat all of it. Prints a
// table to standard output, progress to standard error. Returns the exit code: 1 where something
// failed, or predictions are further off than asked.
int BenchScale(BenchScaleFlags flags);

}  // namespace skein::client
