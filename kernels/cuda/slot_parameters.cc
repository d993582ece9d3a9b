#include "kernels/cuda/slot_parameters.h"

#include <algorithm>
#include <bit>

#include "kernels/sampling/dry.h"
#include "kernels/sampling/sampling.h"
#include "kernels/sampling/shards.h"

namespace skein::kernels::cuda {
namespace {

// Ascending; equal tokens keep their order.
void SortByToken(std::vector<SetPair>& list) {
  std::stable_sort(list.begin(), list.end(),
                   [](const SetPair& a, const SetPair& b) { return a.index < b.index; });
}

void AddBreakers(const serving::SamplingParams& params, int64_t vocabulary, SlotParameters& out) {
  std::vector<SetPair> heads, rest;
  for (const std::vector<int32_t>& breaker : params.dry_breakers) {
    if (breaker.empty()) continue;
    const int32_t last = breaker.back();
    if (breaker.size() > 1) {
      heads.push_back({last, static_cast<int32_t>(rest.size())});
      for (auto left = static_cast<int32_t>(breaker.size()) - 2; left >= 0; --left) {
        rest.push_back({breaker[left], left});
      }
    } else if (last >= 0 && last < vocabulary) {
      out.breakers.resize(MaskWords(vocabulary));
      out.breakers[last / 32] |= uint32_t{1} << (last % 32);
    }
  }
  SortByToken(heads);
  for (SetPair& head : heads) head.value += static_cast<int32_t>(heads.size());
  out.draw.breaks = !out.breakers.empty();
  out.draw.breakers = static_cast<int32_t>(heads.size());
  out.draw.breakers_begin = static_cast<int32_t>(out.list.size());
  out.list.insert(out.list.end(), heads.begin(), heads.end());
  out.list.insert(out.list.end(), rest.begin(), rest.end());
}

}  // namespace

SlotParameters SlotParametersOf(const serving::SamplingParams& params, int64_t vocabulary) {
  SlotParameters out;
  SampledDraw& draw = out.draw;
  draw = {.temperature = params.temperature,
          .top_k = params.top_k,
          .top_p = params.top_p,
          .min_p = params.min_p,
          .typical_p = params.typical_p,
          .repetition_penalty = params.repetition_penalty,
          .presence_penalty = params.presence_penalty,
          .frequency_penalty = params.frequency_penalty,
          .mirostat_tau = params.mirostat_tau,
          .mirostat_eta = params.mirostat_eta,
          .logprobs = params.logprobs,
          .penalises = params.repetition_penalty != 1.0f || params.presence_penalty != 0.0f ||
                       params.frequency_penalty != 0.0f};
  for (const serving::TokenBias& bias : params.logit_bias) {
    out.list.push_back({bias.id, std::bit_cast<int32_t>(bias.bias)});
  }
  SortByToken(out.list);
  draw.biases = static_cast<int32_t>(out.list.size());
  if (params.min_tokens > 0) {
    for (const int32_t id : params.stop_ids) out.list.push_back({id, 0});
  }
  draw.stops = static_cast<int32_t>(out.list.size()) - draw.biases;
  if (params.dry_multiplier <= 0.0f) return out;
  draw.dry_multiplier = params.dry_multiplier;
  draw.dry_base = params.dry_base;
  draw.dry_allowed_length = params.dry_allowed_length;
  draw.dry_last_n = params.dry_last_n;
  draw.dry_most = LongestRepeatThatCounts(params);
  AddBreakers(params, vocabulary, out);
  return out;
}

SampledDraw DrawBehind(const SampledDraw& of, const serving::SamplingParams& params, int64_t prompt,
                       uint64_t output) {
  SampledDraw draw = of;
  draw.uniform = UniformDraw(params.seed, output, params.answer);
  draw.prompt = static_cast<int32_t>(prompt);
  draw.output = static_cast<int32_t>(output);
  if (output >= static_cast<uint64_t>(params.min_tokens)) draw.stops = 0;
  return draw;
}

}  // namespace skein::kernels::cuda
