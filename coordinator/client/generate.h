// skein generate
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"

namespace skein::client {

struct GenerateFlags {
  std::optional<std::string> prompt;
  std::optional<std::string> prompt_file;  // "-": standard input
  std::string model;
  std::optional<uint32_t> max_tokens;
  std::optional<float> temperature;
  std::optional<int32_t> top_k;
  std::optional<float> top_p;
  std::optional<float> min_p;
  std::optional<float> repetition_penalty;
  std::optional<float> presence_penalty;
  std::optional<float> frequency_penalty;
  std::optional<uint64_t> seed;
  std::optional<int32_t> logprobs;
  std::vector<std::string> stops;
  bool parse_special = false;
  bool json = false;
  std::string timeout;
  std::string wait = "10s";
};

void DeclareGenerate(CLI::App& command, GenerateFlags& flags);

// Streams the answer to standard output and statistics to standard error; returns the exit code.
int Generate(const std::string& coordinator, const GenerateFlags& flags);

}  // namespace skein::client
