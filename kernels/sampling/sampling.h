// Choosing the next token: a pure function of (logits, parameters, token history, position) and,
// for mirostat, of the state that it gave with the last token; so that a sequence goes on
// identically on another replica. No state, no locks: any thread may call.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/sampling/dry.h"

namespace skein::kernels {

struct TokenBias {
  int32_t id = 0;
  float bias = 0.0f;
};

// Applied in this order:
//   1. logit_bias;
//   2. repetition, then presence and frequency penalties;
//   3. dry (dry.h);
//   4. min_tokens: stop_ids cannot be drawn;
//   5. temperature; 0 ends here, and leaves mirostat's state as it is;
//   6. mirostat v2; or else top_k, typical_p, top_p and min_p, each of what is left by then;
//   7. the draw.
// Ties always go to the lower token id. Defaults switch everything off; values out of range are for
// the caller to refuse. The order is llama.cpp's, but that temperature comes before the
// truncations, and that penalties and dry act under mirostat, too.
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

  uint32_t sample = 0;                // which of a request's `n` answers; each draws for itself
  std::vector<TokenBias> logit_bias;  // added to the raw logits; equal ids add up
  // While the output has fewer than min_tokens tokens, none of stop_ids is drawn. They are what
  // would end the answer, so that the model's eos is not among them in a request that ignores it.
  int32_t min_tokens = 0;
  std::vector<int32_t> stop_ids;
  // (0, 1]; locally typical sampling (Meister et al., 2022): of the tokens in ascending order of
  // |-ln p - entropy|, as a float, the shortest head with at least this probability.
  float typical_p = 1.0f;
  // Mirostat v2 (Basu et al., 2020), in the place of top_k, typical_p, top_p and min_p: keeps
  // tokens with a surprise -log2 p up to mu, at least the most likely one, and then moves mu by
  // -eta times what the chosen token's surprise among those kept exceeds tau.
  float mirostat_tau = 0.0f;  // > 0, in bits: the surprise to aim at; 0: off
  float mirostat_eta = 0.1f;  // [0, 1]: the learning rate
  DryParams dry;
};

struct TokenLogprob {
  int32_t id = 0;
  float logprob = 0.0f;  // natural logarithm, of the softmax of the raw logits
};

struct SampledToken {
  int32_t id = 0;
  float logprob = 0.0f;                    // valid when logprobs were asked for
  std::vector<TokenLogprob> top_logprobs;  // descending; the n that were asked for
  float mu = 0.0f;  // mirostat's state, for the next token's Sample; valid under mirostat
};

// InvalidArgument for a token outside of a vocabulary, in history or parameters. A history is
// checked once; what was drawn since needs no check.
absl::Status CheckTokens(const SamplingParams& params, absl::Span<const int32_t> prompt,
                         absl::Span<const int32_t> output, int64_t vocabulary);

// logits [vocabulary]; prompt and output: the tokens so far. `position` is the output's length: the
// draw is Philox4x32-10 with key `seed` and counter (`position`, `sample`), its first word's upper
// 24 bits, u. It takes the first token, in descending order of probability, up to which the tokens
// that are left have together more than u of their sum. `mu` is the last token's; none at the
// answer's begin, where mirostat takes 2 tau. Internal when no logit is finite, one is NaN or
// +infinity, or stop_ids leave none; InvalidArgument as CheckTokens says,
// and for a mu that is not finite. Cost: linear in the vocabulary, the history and the parameters'
// lists.
absl::StatusOr<SampledToken> Sample(absl::Span<const float> logits, const SamplingParams& params,
                                    absl::Span<const int32_t> prompt,
                                    absl::Span<const int32_t> output, uint64_t position,
                                    std::optional<float> mu = std::nullopt);

// Prompt logprobs: what a row of logits says of the prompt's next token, `id`, and of its `count`
// most likely tokens, as Sample says it of the token that it chooses. Errors and cost as Sample's.
absl::StatusOr<SampledToken> LogprobsOf(absl::Span<const float> logits, int32_t id, int32_t count);

struct TokenProbability {
  int32_t id = 0;
  double probability = 0;
};

// What Sample draws from, in the order of the draw: probabilities above 0 that add up to 1. Errors
// as Sample's. Cost: it also sorts.
absl::StatusOr<std::vector<TokenProbability>> Survivors(absl::Span<const float> logits,
                                                        const SamplingParams& params,
                                                        absl::Span<const int32_t> prompt,
                                                        absl::Span<const int32_t> output,
                                                        std::optional<float> mu = std::nullopt);

// Uniform in [0, 1): what Sample draws with.
float UniformDraw(uint64_t seed, uint64_t position, uint32_t sample = 0);

// Philox4x32-10 (Salmon et al., 2011): four random words of a counter and a key.
std::array<uint32_t, 4> Philox(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key);

}  // namespace skein::kernels
