// Which candidates (in order of id, after temperature) the draw may take. Internal to sampling.
#pragma once

#include "absl/types/span.h"
#include "kernels/sampling/candidates.h"
#include "kernels/sampling/sampling.h"

namespace skein::kernels {

// typical_p, top_p and min_p, after top_k.
void Truncate(const serving::SamplingParams& params, Candidates& candidates);

// Mirostat's: those with a surprise of up to mu bits, or the most likely one.
void KeepUnsurprising(double mu, Candidates& candidates);

// mu after `chosen` was drawn from candidates whose weights sum to `sum`.
float NextMu(const serving::SamplingParams& params, float mu, const Candidate& chosen, double sum);

}  // namespace skein::kernels
