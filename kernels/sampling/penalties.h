// Changes logits before probabilities are made of them. Internal to sampling.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "kernels/sampling/dry.h"
#include "serving/sampling_params.h"

namespace skein::kernels {

// Tells whether Adjust would do anything.
bool Adjusts(const serving::SamplingParams& params, uint64_t position);

// Memory that is kept from call to call.
struct AdjustMemory {
  std::vector<int32_t> counts;     // [tokens], all 0 between calls
  std::vector<uint8_t> penalised;  // [tokens], all 0 between calls
  DryMemory dry;
};

// Applies logit_bias, penalties, dry and min_tokens. Token first + i has logits[i]; others are
// passed over. No token is negative.
void Adjust(const serving::SamplingParams& params, absl::Span<const int32_t> prompt,
            absl::Span<const int32_t> output, uint64_t position, int32_t first,
            absl::Span<float> logits, AdjustMemory& memory);

}  // namespace skein::kernels
