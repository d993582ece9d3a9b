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
#include "serving/output.h"
#include "serving/sampling_params.h"

namespace skein::kernels {

// InvalidArgument for a token outside of a vocabulary, in history or parameters. A history is
// checked once; what was drawn since needs no check.
absl::Status CheckTokens(const serving::SamplingParams& params, absl::Span<const int32_t> prompt,
                         absl::Span<const int32_t> output, int64_t vocabulary);

// logits [vocabulary]; prompt and output: the tokens so far. `position` is the output's length: the
// draw is Philox4x32-10 with key `seed` and counter (`position`, `params.answer`), its first word's
// upper 24 bits, u. It takes the first token, in descending order of probability, up to which the
// tokens that are left have together more than u of their sum. `mu` is the last token's; none at
// the answer's begin, where mirostat takes 2 tau. Internal when no logit is finite, one is NaN or
// +infinity, or stop_ids leave none; InvalidArgument as CheckTokens says,
// and for a mu that is not finite. Cost: linear in the vocabulary, the history and the parameters'
// lists.
absl::StatusOr<serving::SampledToken> Sample(absl::Span<const float> logits,
                                             const serving::SamplingParams& params,
                                             absl::Span<const int32_t> prompt,
                                             absl::Span<const int32_t> output, uint64_t position,
                                             std::optional<float> mu = std::nullopt);

// Prompt logprobs: what a row of logits says of the prompt's next token, `id`, and of its `count`
// most likely tokens, as Sample says it of the token that it chooses. Errors and cost as Sample's.
absl::StatusOr<serving::SampledToken> LogprobsOf(absl::Span<const float> logits, int32_t id,
                                                 int32_t count);

struct TokenProbability {
  int32_t id = 0;
  double probability = 0;
};

// What Sample draws from, in the order of the draw: probabilities above 0 that add up to 1. Errors
// as Sample's. Cost: it also sorts.
absl::StatusOr<std::vector<TokenProbability>> Survivors(absl::Span<const float> logits,
                                                        const serving::SamplingParams& params,
                                                        absl::Span<const int32_t> prompt,
                                                        absl::Span<const int32_t> output,
                                                        std::optional<float> mu = std::nullopt);

// Uniform in [0, 1): what Sample draws with.
float UniformDraw(uint64_t seed, uint64_t position, uint32_t answer = 0);

// Philox4x32-10 (Salmon et al., 2011): four random words of a counter and a key.
std::array<uint32_t, 4> Philox(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key);

}  // namespace skein::kernels
