// What happens to logits before probabilities are made of them. Internal to sampling.
#pragma once

#include <cstdint>

#include "absl/types/span.h"
#include "kernels/sampling/sampling.h"

namespace skein::kernels {

// Whether Adjust would do anything.
bool Adjusts(const SamplingParams& params, uint64_t position);

// logit_bias, penalties, dry and min_tokens. All tokens are valid indices of `logits`.
void Adjust(const SamplingParams& params, absl::Span<const int32_t> prompt,
            absl::Span<const int32_t> output, uint64_t position, absl::Span<float> logits);

}  // namespace skein::kernels
