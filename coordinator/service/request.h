// A request for text and the events that answer it, as plain data: proto/inference.proto without
// its types.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"

namespace skein::coordinator {

// Unset fields take the model's defaults.
struct SamplingRequest {
  std::optional<float> temperature;
  std::optional<int32_t> top_k;
  std::optional<float> top_p;
  std::optional<float> min_p;
  std::optional<float> repetition_penalty;
  std::optional<float> presence_penalty;
  std::optional<float> frequency_penalty;
  std::optional<uint64_t> seed;
  std::optional<int32_t> logprobs;
};

struct GenerateRequest {
  std::string model;  // empty: the served one
  // Text, or token ids.
  std::variant<std::monostate, std::string, std::vector<uint32_t>> input;
  SamplingRequest sampling;
  std::optional<uint32_t> max_tokens;
  std::vector<std::string> stops;
  bool parse_special = false;
};

struct Accepted {
  std::string request_id;
  uint32_t prompt_tokens = 0;
  uint64_t seed = 0;
  uint32_t max_tokens = 0;
};

struct AnswerLogprob {
  int32_t id = 0;
  float logprob = 0;
  std::string bytes;  // of the token
};

struct AnswerToken {
  int32_t id = 0;
  std::optional<float> logprob;
  std::vector<AnswerLogprob> top;
};

// What became ready since the last event; text may lag behind tokens.
struct Tokens {
  std::string text;
  std::vector<AnswerToken> tokens;
};

struct Usage {
  uint32_t prompt_tokens = 0;
  uint32_t completion_tokens = 0;
  double queue_seconds = 0;
  double first_token_seconds = 0;
  double total_seconds = 0;
};

struct Finished {
  enum class Reason { kEos, kStop, kMaxTokens };
  Reason reason = Reason::kEos;
  std::string stop;  // with kStop: which
  Usage usage;
};

// An absl::Status is the error that ends the answer.
using Event = std::variant<Accepted, Tokens, Finished, absl::Status>;

}  // namespace skein::coordinator
