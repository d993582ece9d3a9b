#include "kernels/sampling/penalties.h"

#include <limits>

namespace skein::kernels {
namespace {

bool HasPenalties(const serving::SamplingParams& params) {
  return params.repetition_penalty != 1.0f || params.presence_penalty != 0.0f ||
         params.frequency_penalty != 0.0f;
}

bool Forbids(const serving::SamplingParams& params, uint64_t position) {
  return params.min_tokens > 0 && position < static_cast<uint64_t>(params.min_tokens) &&
         !params.stop_ids.empty();
}

// The logits of a part of the vocabulary, by token.
class Part {
 public:
  Part(int32_t first, absl::Span<float> logits) : first_(first), logits_(logits) {}
  // Returns -1 for a token of another part.
  int64_t IndexOf(int32_t token) const {
    const int64_t index = int64_t{token} - first_;
    return index >= 0 && index < static_cast<int64_t>(logits_.size()) ? index : -1;
  }
  float& operator[](int64_t index) const { return logits_[index]; }
  size_t size() const { return logits_.size(); }

 private:
  const int32_t first_;
  const absl::Span<float> logits_;
};

void Penalise(const serving::SamplingParams& params, absl::Span<const int32_t> prompt,
              absl::Span<const int32_t> output, const Part& part, AdjustMemory& memory) {
  if (memory.counts.size() < part.size()) {
    memory.counts.resize(part.size());
    memory.penalised.resize(part.size());
  }
  for (const auto& tokens : {prompt, output}) {
    for (int32_t token : tokens) {
      const int64_t i = part.IndexOf(token);
      if (i < 0 || memory.penalised[i] != 0) continue;
      memory.penalised[i] = 1;
      float& logit = part[i];
      logit = logit > 0 ? logit / params.repetition_penalty : logit * params.repetition_penalty;
    }
  }
  for (int32_t token : output) {
    if (const int64_t i = part.IndexOf(token); i >= 0) ++memory.counts[i];
  }
  for (int32_t token : output) {
    const int64_t i = part.IndexOf(token);
    if (i < 0 || memory.counts[i] == 0) continue;
    const auto count = static_cast<float>(memory.counts[i]);
    part[i] -= params.presence_penalty + count * params.frequency_penalty;
    memory.counts[i] = 0;
  }
  for (const auto& tokens : {prompt, output}) {
    for (int32_t token : tokens) {
      if (const int64_t i = part.IndexOf(token); i >= 0) memory.penalised[i] = 0;
    }
  }
}

}  // namespace

bool Adjusts(const serving::SamplingParams& params, uint64_t position) {
  return !params.logit_bias.empty() || HasPenalties(params) || params.dry_multiplier > 0.0f ||
         Forbids(params, position);
}

void Adjust(const serving::SamplingParams& params, absl::Span<const int32_t> prompt,
            absl::Span<const int32_t> output, uint64_t position, int32_t first,
            absl::Span<float> logits, AdjustMemory& memory) {
  const Part part(first, logits);
  for (const serving::TokenBias& bias : params.logit_bias) {
    if (const int64_t i = part.IndexOf(bias.id); i >= 0) part[i] += bias.bias;
  }
  if (HasPenalties(params)) Penalise(params, prompt, output, part, memory);
  if (params.dry_multiplier > 0.0f) {
    PenaliseRepeats(params, prompt, output, first, logits, memory.dry);
  }
  if (!Forbids(params, position)) return;
  for (int32_t id : params.stop_ids) {
    if (const int64_t i = part.IndexOf(id); i >= 0) {
      part[i] = -std::numeric_limits<float>::infinity();
    }
  }
}

}  // namespace skein::kernels
