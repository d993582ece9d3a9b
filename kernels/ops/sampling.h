// Choosing the next token: a pure function of (logits, parameters, token history, seed, position),
// so that a sequence goes on identically on another replica.
#pragma once

#include <array>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace skein::kernels {

// Applied in this order: penalties, temperature, top_k, top_p, min_p, draw. Ties always go to the
// lower token id.
struct SamplingParams {
  float repetition_penalty = 1.0f;  // > 0; divides positive and multiplies negative logits of
                                    // every token of prompt or output, once
  float presence_penalty = 0.0f;    // subtracted once for every token of the output
  float frequency_penalty = 0.0f;   // subtracted as often as the token stands in the output
  float temperature = 1.0f;         // >= 0; 0 takes the most likely token
  int32_t top_k = 0;                // 0: off
  float top_p = 1.0f;               // (0, 1]: the shortest head with at least this probability
  float min_p = 0.0f;               // [0, 1]: at least this share of the most likely token's
  uint64_t seed = 0;
  int32_t logprobs = -1;  // -1: none; n >= 0: the chosen token's and the n most likely tokens'
};

struct TokenLogprob {
  int32_t id = 0;
  float logprob = 0.0f;  // natural logarithm, of the softmax of the raw logits
};

struct SampledToken {
  int32_t id = 0;
  float logprob = 0.0f;                    // valid when logprobs were asked for
  std::vector<TokenLogprob> top_logprobs;  // descending; the n that were asked for
};

// logits [vocabulary]; prompt and output: the tokens so far. `position` is the output's length: the
// draw is Philox4x32-10 with key `seed` and counter `position`, its first word's upper 24 bits, u.
// It takes the first token, in descending order of probability, up to which the tokens that are
// left have together more than u of their sum. Internal when no logit is finite or one is NaN or
// +infinity; InvalidArgument for a token of the history outside of the logits. Cost: linear in the
// vocabulary and the history.
absl::StatusOr<SampledToken> Sample(absl::Span<const float> logits, const SamplingParams& params,
                                    absl::Span<const int32_t> prompt,
                                    absl::Span<const int32_t> output, uint64_t position);

struct TokenProbability {
  int32_t id = 0;
  double probability = 0;
};

// What Sample draws from, in the order of the draw: probabilities above 0 that add up to 1. Errors
// as Sample's. Cost: it also sorts.
absl::StatusOr<std::vector<TokenProbability>> Survivors(absl::Span<const float> logits,
                                                        const SamplingParams& params,
                                                        absl::Span<const int32_t> prompt,
                                                        absl::Span<const int32_t> output);

// Uniform in [0, 1): what Sample draws with.
float UniformDraw(uint64_t seed, uint64_t position);

// Philox4x32-10 (Salmon et al., 2011): four random words of a counter and a key.
std::array<uint32_t, 4> Philox(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key);

}  // namespace skein::kernels
