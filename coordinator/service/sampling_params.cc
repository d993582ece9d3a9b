#include "coordinator/service/sampling_params.h"

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace skein::coordinator {
namespace {

// What the API promises in proto/inference.proto.
constexpr int32_t kMaxLogprobs = 20;
constexpr size_t kMaxBiases = 1024;

struct FloatRange {
  const char* field;
  double low;
  double high;
  bool open = false;  // low itself is out

  absl::Status Check(float value) const {
    if (value >= low && value <= high && !(open && value == low))
      return absl::OkStatus();  // NaN: no
    return absl::InvalidArgumentError(absl::StrCat("sampling.", field, ": ", value, " is not in ",
                                                   open ? "(" : "[", low, ", ", high, "]"));
  }
};

absl::Status CheckInt(const char* field, int32_t value, int32_t low, int32_t high) {
  if (value >= low && value <= high) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("sampling.", field, ": ", value, " is not in [", low, ", ", high, "]"));
}

template <typename T, typename U>
T FirstOf(const std::optional<T>& asked, const std::optional<U>& model, T otherwise) {
  if (asked.has_value()) return *asked;
  return model.has_value() ? static_cast<T>(*model) : otherwise;
}

absl::Status CheckRanges(const SamplingParams& params) {
  const std::pair<FloatRange, float> floats[] = {
      {{"temperature", 0, 100}, params.temperature},
      {{"top_p", 0, 1, /*open=*/true}, params.top_p},
      {{"min_p", 0, 1}, params.min_p},
      // Logits are divided by it, and must stay finite.
      {{"repetition_penalty", 0.01f, 100}, params.repetition_penalty},
      {{"presence_penalty", -100, 100}, params.presence_penalty},
      {{"frequency_penalty", -100, 100}, params.frequency_penalty},
      {{"typical_p", 0, 1, /*open=*/true}, params.typical_p},
      {{"mirostat_tau", 0, 100}, params.mirostat_tau},
      {{"mirostat_eta", 0, 1}, params.mirostat_eta},
      {{"dry_multiplier", 0, 100}, params.dry_multiplier},
      {{"dry_base", 1, 100}, params.dry_base},
  };
  for (const auto& [range, value] : floats) SKEIN_RETURN_IF_ERROR(range.Check(value));
  constexpr int32_t kMost = std::numeric_limits<int32_t>::max();
  SKEIN_RETURN_IF_ERROR(CheckInt("top_k", params.top_k, 0, kMost));
  SKEIN_RETURN_IF_ERROR(CheckInt("dry_allowed_length", params.dry_allowed_length, 1, kMost));
  return CheckInt("dry_last_n", params.dry_last_n, -1, kMost);
}

absl::Status CheckBiases(const SamplingRequest& sampling) {
  const auto& biases = sampling.logit_bias;
  if (biases.size() > kMaxBiases) {
    return absl::InvalidArgumentError(absl::StrCat(
        "sampling.logit_bias: ", biases.size(), " tokens; at most ", kMaxBiases, " are allowed"));
  }
  for (size_t i = 0; i < biases.size(); ++i) {
    const std::string field = absl::StrCat("logit_bias[", i, "].bias");
    SKEIN_RETURN_IF_ERROR((FloatRange{field.c_str(), -100, 100}.Check(biases[i].second)));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<SamplingParams> ResolveSampling(const SamplingRequest& sampling,
                                               const model::GenerationDefaults& defaults) {
  const SamplingParams api;  // whose defaults are the API's
  SamplingParams params;
  // A model that asks for greedy decoding gets it, unless the request names a temperature.
  params.temperature = defaults.do_sample == false
                           ? sampling.temperature.value_or(0.0f)
                           : FirstOf(sampling.temperature, defaults.temperature, api.temperature);
  params.top_k = FirstOf(sampling.top_k, defaults.top_k, api.top_k);
  params.top_p = FirstOf(sampling.top_p, defaults.top_p, api.top_p);
  params.min_p = FirstOf(sampling.min_p, defaults.min_p, api.min_p);
  params.repetition_penalty =
      FirstOf(sampling.repetition_penalty, defaults.repetition_penalty, api.repetition_penalty);
  params.presence_penalty = sampling.presence_penalty.value_or(api.presence_penalty);
  params.frequency_penalty = sampling.frequency_penalty.value_or(api.frequency_penalty);
  params.seed = sampling.seed.value_or(api.seed);
  params.typical_p = FirstOf(sampling.typical_p, defaults.typical_p, api.typical_p);
  params.mirostat_tau = sampling.mirostat_tau.value_or(api.mirostat_tau);
  params.mirostat_eta = sampling.mirostat_eta.value_or(api.mirostat_eta);
  params.dry_multiplier = sampling.dry_multiplier.value_or(api.dry_multiplier);
  params.dry_base = sampling.dry_base.value_or(api.dry_base);
  params.dry_allowed_length = sampling.dry_allowed_length.value_or(api.dry_allowed_length);
  params.dry_last_n = sampling.dry_last_n.value_or(api.dry_last_n);
  SKEIN_RETURN_IF_ERROR(CheckRanges(params));
  SKEIN_RETURN_IF_ERROR(CheckBiases(sampling));
  params.logit_bias.assign(sampling.logit_bias.begin(), sampling.logit_bias.end());
  if (sampling.logprobs.has_value()) {
    SKEIN_RETURN_IF_ERROR(CheckInt("logprobs", *sampling.logprobs, 0, kMaxLogprobs));
    params.logprobs = *sampling.logprobs;
  }
  return params;
}

}  // namespace skein::coordinator
