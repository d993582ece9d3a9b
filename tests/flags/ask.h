// What `skein generate` says to a request.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/flags/run.h"

namespace skein::testing {

inline constexpr char kSkein[] = "client/skein";

// Of all its events; of several answers, in the order in which they came.
struct Asked {
  Outcome outcome;
  nlohmann::json accepted;
  std::vector<nlohmann::json> tokens;  // with log probabilities where asked for
  std::vector<nlohmann::json> prompt_logprobs;
  std::vector<nlohmann::json> finished;
  std::vector<int64_t> ids;  // of the tokens
  std::string text;

  // Of the first answer to end; empty without one.
  std::string reason() const;
  int64_t prompt_tokens() const;
};

// `skein generate --json` with these flags, in the shell's spelling.
Asked Ask(const std::string& coordinator, const std::string& flags);

}  // namespace skein::testing
