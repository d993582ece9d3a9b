// Chooses the next token: a pure function of (logits, parameters, token history, position) and, for
// mirostat, of the state that it gave with the last token, so that a sequence goes on identically
// on another replica. It has no state and no locks: any thread may call.
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

// logits [vocabulary]; prompt and output are the tokens so far. `position` is the output's length:
// the draw is Philox4x32-10 with key `seed` and counter (`position`, `params.answer`), its first
// word's upper 24 bits, u. It takes the first token, in descending order of probability, up to
// which the tokens that are left have together more than u of their sum. `mu` is the one that came
// with the last token; it is unset at the answer's begin, where mirostat takes 2 tau. Internal when
// no logit is finite, one is NaN or +infinity, or stop_ids leave none; InvalidArgument as
// CheckTokens says, and for a mu that is not finite. Cost: linear in the vocabulary, the history
// and the parameters' lists.
absl::StatusOr<serving::SampledToken> Sample(absl::Span<const float> logits,
                                             const serving::SamplingParams& params,
                                             absl::Span<const int32_t> prompt,
                                             absl::Span<const int32_t> output, uint64_t position,
                                             std::optional<float> mu = std::nullopt);

// Returns the number that Sample draws with, uniform in [0, 1).
float UniformDraw(uint64_t seed, uint64_t position, uint32_t answer = 0);

// Returns four random words of a counter and a key by Philox4x32-10 (Salmon et al., 2011).
std::array<uint32_t, 4> Philox(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key);

}  // namespace skein::kernels
