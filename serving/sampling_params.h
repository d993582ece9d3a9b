// How the tokens of an answer are chosen, as the API, the wire and the sampler know it.
#pragma once

#include <cstdint>
#include <vector>

namespace skein::serving {

struct TokenBias {
  int32_t id = 0;
  float bias = 0;

  friend bool operator==(const TokenBias&, const TokenBias&) = default;
};

// Applied in this order:
//   1. logit_bias;
//   2. repetition, then presence and frequency penalties;
//   3. DRY;
//   4. min_tokens: stop_ids cannot be drawn;
//   5. temperature; 0 ends here, and leaves mirostat's state as it is;
//   6. mirostat v2; or else top_k, typical_p, top_p and min_p, each of what is left by then;
//   7. the draw.
// Ties always go to the lower token id. Defaults switch everything off. The order is llama.cpp's,
// but that temperature comes before the truncations, and that penalties and DRY act under mirostat,
// too. Scalars have a row each in sampling_fields.h, which is what the ways to the sampler know.
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

  uint32_t answer = 0;                // index among the request's answers; each draws for itself
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

  // DRY, "don't repeat yourself": see kernels/sampling/dry.h.
  float dry_multiplier = 0.0f;     // >= 0; 0: off
  float dry_base = 1.75f;          // >= 1
  int32_t dry_allowed_length = 2;  // >= 1; shorter repeats cost nothing
  int32_t dry_last_n = -1;         // how much of the history's end is looked at; < 0: all
  // Token sequences over which no repeat reaches. Users name strings, which a byte-level vocabulary
  // holds inside of many tokens: the caller lists every token with the string in it, each as a
  // sequence of one, and the sequences that spell a longer string. A sequence of one is never
  // penalised itself.
  std::vector<std::vector<int32_t>> dry_breakers;

  friend bool operator==(const SamplingParams&, const SamplingParams&) = default;
};

}  // namespace skein::serving
