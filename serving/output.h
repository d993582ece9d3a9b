// What replicas give: tokens of answers, and how answers end.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/time/time.h"
#include "serving/request.h"

namespace skein::serving {

struct TokenLogprob {
  int32_t id = 0;
  float logprob = 0;  // natural logarithm, of the softmax of the raw logits

  friend bool operator==(const TokenLogprob&, const TokenLogprob&) = default;
};

struct SampledToken {
  int32_t id = 0;
  float logprob = 0;                       // valid when log probabilities were asked for
  std::vector<TokenLogprob> top_logprobs;  // descending; as many as were asked for
  float mu = 0;                            // mirostat's state after it; valid under mirostat
};

enum class Finish : uint8_t {
  kNotFinished,
  kEos,        // the last token is one of eos_token_ids
  kMaxTokens,  // max_tokens were given
  kCancelled,  // the whole request, or this answer of it alone
  kFailed,     // this answer
};

struct AnswerOutput {
  RequestId request_id;
  int32_t answer = 0;  // AnswerStart::index; kCancelled is of all that was cancelled together
  absl::InlinedVector<SampledToken, 1> tokens;
  std::vector<SampledToken> prompt_logprobs;  // the next ones, from the prompt's second token on
  // With the answer's first token here: the prompt's tokens that the prefix cache had.
  int64_t cached_tokens = 0;
  // [hidden] with the answer's end, where the request asks for pooling: the final norm's output,
  // pooled.
  std::vector<float> embedding;
  Finish finish = Finish::kNotFinished;
  std::string error;  // with kFailed
};

// Steps with rows of prompts, beside which others may decode. Counters run since a replica's start.
struct PromptSteps {
  int64_t steps = 0;
  int64_t behind_nothing = 0;  // of these steps, those that found the replica idle
  int64_t behind_decodes = 0;  // and those behind a step that decoded alone
  int64_t prompts = 0;         // that a step has rows of, over all steps
  int64_t rows = 0;            // of prompts
  int64_t context = 0;         // tokens before each of these rows, over all of them
  int64_t outputs = 0;         // of these rows, those with logits
  int64_t decodes = 0;         // rows beside these, one a sequence
  int64_t decode_context = 0;  // tokens before each of those, over all of them
  absl::Duration time;         // from the result of the step before

  PromptSteps& operator+=(const PromptSteps& other) {
    steps += other.steps;
    behind_nothing += other.behind_nothing;
    behind_decodes += other.behind_decodes;
    prompts += other.prompts;
    rows += other.rows;
    context += other.context;
    outputs += other.outputs;
    decodes += other.decodes;
    decode_context += other.decode_context;
    time += other.time;
    return *this;
  }
};

// The state of a replica. Counters run since its start.
struct ReplicaLoad {
  int32_t running = 0;  // sequences
  int32_t waiting = 0;
  int64_t total_pages = 0;
  int64_t free_pages = 0;    // neither used nor cached
  int64_t used_pages = 0;    // by running sequences
  int64_t shared_pages = 0;  // of those, by two or more
  int64_t cached_pages = 0;  // kept for later prompts, used or not
  int64_t total_swap_pages = 0;
  int64_t free_swap_pages = 0;
  int64_t steps = 0;
  int64_t prompt_tokens = 0;  // of admitted sequences
  int64_t cached_tokens = 0;  // of those, found in the prefix cache
  int64_t preemptions_swapped = 0;
  int64_t preemptions_recomputed = 0;
  // Of steps that decode alone, a row a sequence.
  int64_t decode_steps = 0;
  int64_t decode_rows = 0;
  int64_t decode_context = 0;  // tokens before each row, over all rows
  absl::Duration decode_time;  // from the result of the step before
  PromptSteps prompt_steps;
  absl::Duration host_time;  // of the scheduling thread's CPU, from results to the next order
};

// What a replica gave since its last output: about one a step.
struct StepOutput {
  std::vector<AnswerOutput> answers;
  ReplicaLoad load;
};

}  // namespace skein::serving
