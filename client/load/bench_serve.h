// skein bench serve
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "CLI/CLI.hpp"
#include "client/endpoint.h"
#include "client/load/statistics.h"

namespace skein::client {

struct BenchServeFlags {
  std::string model;  // "": the first that serves
  int64_t concurrency = 8;
  double rate_per_s = 0;
  bool separate_calls = false;
  int64_t requests = 100;
  int64_t warmup = 0;
  int64_t prompt_tokens = 128;
  int64_t answer_tokens = 64;
  std::string lengths_file;
  int64_t shared_prefix = 0;
  uint64_t seed = 0;
  Limits limits;
  std::string json_file;
  std::string svg_file;
};

void DeclareBenchServe(CLI::App& command, BenchServeFlags& flags);

// Loads the coordinator, prints the report to standard output and progress to a terminal's standard
// error; returns the exit code: of a request that failed or was not done, too. An interrupt ends
// the load; the report of what was seen says that it is incomplete.
int BenchServe(const Endpoint& coordinator, const BenchServeFlags& flags);

}  // namespace skein::client
