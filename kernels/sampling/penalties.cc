#include "kernels/sampling/penalties.h"

#include <limits>
#include <vector>

namespace skein::kernels {
namespace {

bool HasPenalties(const SamplingParams& params) {
  return params.repetition_penalty != 1.0f || params.presence_penalty != 0.0f ||
         params.frequency_penalty != 0.0f;
}

bool Forbids(const SamplingParams& params, uint64_t position) {
  return params.min_tokens > 0 && position < static_cast<uint64_t>(params.min_tokens) &&
         !params.stop_ids.empty();
}

void Penalise(const SamplingParams& params, absl::Span<const int32_t> prompt,
              absl::Span<const int32_t> output, absl::Span<float> logits) {
  std::vector<int32_t> counts(logits.size(), 0);  // in the output
  std::vector<bool> repeated(logits.size(), false);
  for (const auto& tokens : {prompt, output}) {
    for (int32_t token : tokens) {
      if (repeated[token]) continue;
      repeated[token] = true;
      float& logit = logits[token];
      logit = logit > 0 ? logit / params.repetition_penalty : logit * params.repetition_penalty;
    }
  }
  for (int32_t token : output) ++counts[token];
  for (int32_t token : output) {
    const auto count = static_cast<float>(counts[token]);
    if (count == 0) continue;
    logits[token] -= params.presence_penalty + count * params.frequency_penalty;
    counts[token] = 0;  // done
  }
}

}  // namespace

bool Adjusts(const SamplingParams& params, uint64_t position) {
  return !params.logit_bias.empty() || HasPenalties(params) || params.dry.multiplier > 0.0f ||
         Forbids(params, position);
}

void Adjust(const SamplingParams& params, absl::Span<const int32_t> prompt,
            absl::Span<const int32_t> output, uint64_t position, absl::Span<float> logits) {
  for (const TokenBias& bias : params.logit_bias) logits[bias.id] += bias.bias;
  if (HasPenalties(params)) Penalise(params, prompt, output, logits);
  if (params.dry.multiplier > 0.0f) PenaliseRepeats(params.dry, prompt, output, logits);
  if (!Forbids(params, position)) return;
  for (int32_t id : params.stop_ids) logits[id] = -std::numeric_limits<float>::infinity();
}

}  // namespace skein::kernels
