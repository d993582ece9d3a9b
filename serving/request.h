// A request as coordinator and replicas know it: checked, tokenized, every field with its value.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/time/time.h"
#include "base/strong_id.h"
#include "serving/sampling_params.h"

namespace skein::serving {

// Given by the coordinator; unique within its life.
using RequestId = StrongId<struct RequestIdTag>;

// An answer that is not finished. A request moves to another replica with what it has of them.
struct AnswerStart {
  int32_t index = 0;            // among the request's answers; random draws depend on it
  std::vector<int32_t> output;  // [tokens] given before, by another replica; not given again
  std::optional<float> mu;      // mirostat's state after `output`
};

// What of a prompt's hidden states makes its embedding.
enum class Pooling : uint8_t {
  kNone,  // none is wanted
  kLast,  // the last token's
  kMean,  // the mean over all tokens
};

struct Request {
  RequestId id;
  std::vector<int32_t> prompt;                   // [tokens], at least one
  std::vector<AnswerStart> answers = {{}};       // at least one; they share the prompt's pages
  int32_t max_tokens = 0;                        // of each whole answer, `output` included
  std::vector<int32_t> eos_token_ids;            // end an answer: the model's, and the client's
  int32_t priority = 0;                          // higher goes first: queue_order.h
  absl::Time deadline = absl::InfiniteFuture();  // earlier goes first
  absl::Duration waited;         // since it arrived at the coordinator, until it was sent
  int32_t prompt_logprobs = -1;  // -1: none; n: of each prompt token and the n most likely ones
  // Other than kNone: the answer, of one token that nobody reads, comes with an embedding.
  Pooling pooling = Pooling::kNone;
  SamplingParams sampling;  // `answer` is unused: each answer has its own
};

struct CancelledAnswer {
  RequestId request_id;
  int32_t answer = 0;  // AnswerStart::index

  friend bool operator==(const CancelledAnswer&, const CancelledAnswer&) = default;
};

// What a replica is told of its requests: everything since the last time. New requests come before
// cancellations.
struct RequestUpdates {
  std::vector<Request> requests;
  std::vector<RequestId> cancelled;
  std::vector<CancelledAnswer> cancelled_answers;  // the request's other answers go on
};

}  // namespace skein::serving
