// A request for text and the events that answer it, as plain data: proto/inference.proto without
// its types.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "coordinator/cluster/messages.h"

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
  std::optional<float> typical_p;
  std::optional<float> mirostat_tau;  // above 0: mirostat v2 instead of the truncations
  std::optional<float> mirostat_eta;
  std::vector<std::pair<uint32_t, float>> logit_bias;
  uint32_t min_tokens = 0;
  bool ignore_eos = false;
  std::optional<float> dry_multiplier;  // above 0: on
  std::optional<float> dry_base;
  std::optional<int32_t> dry_allowed_length;
  std::optional<int32_t> dry_last_n;
  std::optional<std::vector<std::string>> dry_breakers;
};

struct GenerateRequest {
  std::string model;  // empty: the served one
  // Text, or token ids.
  std::variant<std::monostate, std::string, std::vector<uint32_t>> input;
  SamplingRequest sampling;
  std::optional<uint32_t> max_tokens;
  std::vector<std::string> stops;
  std::vector<uint32_t> stop_ids;  // end an answer as the model's eos does
  bool parse_special = false;
  uint32_t samples = 1;  // answers to the one prompt
  int32_t priority = 0;  // higher goes first
  absl::Time deadline = absl::InfiniteFuture();
  std::optional<int32_t> prompt_logprobs;
};

struct Accepted {
  std::string request_id;
  uint32_t prompt_tokens = 0;
  uint64_t seed = 0;
  uint32_t max_tokens = 0;
  uint32_t samples = 1;
};

struct AnswerToken {
  int32_t id = 0;
  std::optional<float> logprob;
  std::vector<TokenLogprob> top;
};

// The part of one answer that became ready since the last event. Text may lag behind tokens.
struct Tokens {
  uint32_t sample = 0;
  std::string text;
  std::vector<AnswerToken> tokens;
  // When asked for, before the first token: of the prompt's tokens from the second one on.
  std::vector<AnswerToken> prompt_logprobs;
};

struct Usage {
  uint32_t prompt_tokens = 0;
  uint32_t completion_tokens = 0;
  double queue_seconds = 0;
  double first_token_seconds = 0;
  double total_seconds = 0;
};

// The end of one answer; the request ends with its last answer.
struct Finished {
  enum class Reason { kEos, kStop, kMaxTokens };
  uint32_t sample = 0;
  Reason reason = Reason::kEos;
  std::string stop;  // with kStop: which
  Usage usage;       // of this answer
};

// An absl::Status is the error that ends the answer.
using Event = std::variant<Accepted, Tokens, Finished, absl::Status>;

}  // namespace skein::coordinator
