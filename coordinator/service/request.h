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
#include "serving/output.h"
#include "serving/request.h"
#include "serving/sampling_values.h"

namespace skein::coordinator {

// Unset fields take the model's defaults.
struct SamplingRequest {
  serving::SamplingValues values;  // the scalars
  std::vector<serving::TokenBias> logit_bias;
  bool ignore_eos = false;
  std::optional<std::vector<std::string>> dry_breakers;
};

// A conversation, in messages of roles, which the model's template makes a prompt of.
struct Chat {
  struct Message {
    std::string role, content;
  };
  std::vector<Message> messages;
};

// A vector that stands for the prompt, in the place of text.
struct EmbeddingRequest {
  serving::Pooling pooling = serving::Pooling::kMean;  // not kNone
  bool normalized = true;                              // to a length of 1
};

struct GenerateRequest {
  std::string model;  // empty: the served one
  // Text, token ids, or a conversation.
  std::variant<std::monostate, std::string, std::vector<uint32_t>, Chat> input;
  SamplingRequest sampling;
  std::optional<uint32_t> max_tokens;
  std::vector<std::string> stops;
  std::vector<uint32_t> stop_ids;  // end an answer as the model's eos does
  bool parse_special = false;
  uint32_t n = 1;        // answers to the one prompt
  int32_t priority = 0;  // higher goes first
  absl::Time deadline = absl::InfiniteFuture();
  std::optional<int32_t> prompt_logprobs;
  std::optional<EmbeddingRequest>
      embedding;  // of what says how text is drawn, nothing goes with it
};

struct Accepted {
  std::string request_id;
  uint32_t prompt_tokens = 0;
  uint64_t seed = 0;
  uint32_t max_tokens = 0;
  uint32_t n = 1;  // answers
  // How long its client may be away and come back with request_id; 0: it may not.
  absl::Duration resume_window;
};

struct AnswerToken {
  int32_t id = 0;
  std::optional<float> logprob;
  std::vector<serving::TokenLogprob> top_logprobs;
};

// The part of one answer that became ready since the last event. Text may lag behind tokens.
struct Tokens {
  int32_t answer = 0;  // index
  std::string text;
  std::vector<AnswerToken> tokens;
  // When asked for, before the first token: of the prompt's tokens from the second one on.
  std::vector<AnswerToken> prompt_logprobs;
  std::vector<float> embedding;  // [hidden size], alone, where it was asked for
  // What going on from here needs besides tokens; of no use to a client.
  struct State {
    std::optional<float> mu;    // mirostat's
    int64_t cached_tokens = 0;  // as Usage has them, as far as they are known
    absl::Duration queue_time, first_token_time;
  };
  State state;
};

struct Usage {
  uint32_t prompt_tokens = 0;
  uint32_t completion_tokens = 0;
  uint32_t cached_tokens = 0;  // the prompt's that the prefix cache had, where the answer began
  // Since the request arrived.
  absl::Duration queue_time;
  absl::Duration first_token_time;
  absl::Duration total_time;
};

// The end of one answer; the request ends with its last answer.
struct Finished {
  enum class Reason { kEos, kStop, kMaxTokens };
  int32_t answer = 0;  // index
  Reason reason = Reason::kEos;
  std::string stop;  // with kStop: which
  Usage usage;       // of this answer
};

// An absl::Status is the error that ends the answer.
using Event = std::variant<Accepted, Tokens, Finished, absl::Status>;

}  // namespace skein::coordinator
