// Keeps the candidates (in order of id, after temperature) that the draw may take. Internal to
// sampling.
#pragma once

#include "absl/types/span.h"
#include "kernels/sampling/candidates.h"
#include "serving/sampling_params.h"

namespace skein::kernels {

// Leaves the candidates that the draw may take: mirostat's, those with a surprise of up to mu bits
// or the most likely one; or else those that typical_p, top_p and min_p keep, after top_k.
void Restrict(const serving::SamplingParams& params, float mu, Candidates& candidates);

// Takes from a whole row all candidates that the draw may take. logits [vocabulary], after all that
// comes before the temperature, which is > 0; `largest` is the largest of them.
void RestrictRow(const serving::SamplingParams& params, absl::Span<const float> logits,
                 float largest, float mu, Candidates& candidates);

// Returns mu after `chosen` was drawn from candidates whose weights sum to `sum`.
float NextMu(const serving::SamplingParams& params, float mu, const Candidate& chosen, double sum);

}  // namespace skein::kernels
