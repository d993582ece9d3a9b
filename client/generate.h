// skein generate
#pragma once

#include <optional>
#include <string>

#include "CLI/CLI.hpp"
#include "absl/time/time.h"
#include "client/endpoint.h"
#include "proto/inference.pb.h"

namespace skein::client {

struct GenerateFlags {
  std::optional<std::string> prompt;
  std::optional<std::string> prompt_file;  // "-": standard input
  v1::GenerateRequest request;             // all but the prompt
  bool json = false;
  std::optional<absl::Duration> timeout;
  absl::Duration wait = absl::Seconds(10);
};

// `flags` lives until the command line is parsed.
void DeclareGenerate(CLI::App& command, GenerateFlags& flags);

// Streams the answers to standard output and statistics to standard error; returns the exit code.
int Generate(const Endpoint& coordinator, const GenerateFlags& flags);

}  // namespace skein::client
