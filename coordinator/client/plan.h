// skein plan
#pragma once

#include <cstdint>
#include <string>

#include "CLI/CLI.hpp"

namespace skein::client {

struct PlanFlags {
  std::string model;
  int32_t ranks = 1;
  std::string layout;
  int64_t context_length = 0;
  int32_t max_sequences = 0;
  std::string kv_memory;
  std::string kv_dtype = "f32";
  std::string swap_memory;
  int64_t step_tokens = 0;
  std::string gantt_file;
  double read_bandwidth_gb_s = 10;
};

void DeclarePlan(CLI::App& command, PlanFlags& flags);

// Plans a job of `ranks` ranks on this host as a coordinator would, without one: prints the plan
// and why other layouts lost. Returns the exit code.
int Plan(const PlanFlags& flags);

}  // namespace skein::client
