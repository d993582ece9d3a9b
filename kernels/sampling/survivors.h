// Shows tests what a draw takes its token from.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "serving/sampling_params.h"

namespace skein::kernels {

struct TokenProbability {
  int32_t id = 0;
  double probability = 0;
};

// Returns what Sample draws from at the position behind `output`, in the order of the draw:
// probabilities above 0 that add up to 1. Arguments and errors are Sample's.
absl::StatusOr<std::vector<TokenProbability>> Survivors(absl::Span<const float> logits,
                                                        const serving::SamplingParams& params,
                                                        absl::Span<const int32_t> prompt,
                                                        absl::Span<const int32_t> output,
                                                        std::optional<float> mu = std::nullopt);

}  // namespace skein::kernels
