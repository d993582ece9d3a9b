// Keeps the candidates (in order of id, after temperature) that the draw may take. Internal to
// sampling.
#pragma once

#include "absl/types/span.h"
#include "kernels/sampling/candidates.h"
#include "kernels/sampling/sampling.h"

namespace skein::kernels {

// Applies typical_p, top_p and min_p, after top_k.
void Truncate(const serving::SamplingParams& params, Candidates& candidates);

// Keeps candidates with a surprise of up to mu bits, or the most likely one, as mirostat does.
void KeepUnsurprising(double mu, Candidates& candidates);

// Returns mu after `chosen` was drawn from candidates whose weights sum to `sum`.
float NextMu(const serving::SamplingParams& params, float mu, const Candidate& chosen, double sum);

}  // namespace skein::kernels
