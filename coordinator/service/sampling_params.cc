#include "coordinator/service/sampling_params.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "serving/sampling_values.h"

namespace skein::coordinator {
namespace {

// What the API promises in proto/inference.proto.
constexpr size_t kMaxBiases = 1024;
constexpr float kMostBias = 100;

absl::Status CheckBiases(const SamplingRequest& sampling) {
  const auto& biases = sampling.logit_bias;
  if (biases.size() > kMaxBiases) {
    return absl::InvalidArgumentError(absl::StrCat(
        "sampling.logit_bias: ", biases.size(), " tokens; at most ", kMaxBiases, " are allowed"));
  }
  for (size_t i = 0; i < biases.size(); ++i) {
    const float bias = biases[i].bias;
    if (bias >= -kMostBias && bias <= kMostBias) continue;  // NaN is not
    return absl::InvalidArgumentError(absl::StrCat("sampling.logit_bias[", i, "].bias: ", bias,
                                                   " is not in [", -kMostBias, ", ", kMostBias,
                                                   "]"));
  }
  return absl::OkStatus();
}

}  // namespace

serving::SamplingValues ModelDefaults(const model::GenerationDefaults& defaults) {
  serving::SamplingValues values;
  const auto set = [&](std::string_view name, const std::optional<double>& value) {
    if (value.has_value()) values.emplace(name, static_cast<float>(*value));
  };
  if (defaults.do_sample == false) {
    values.emplace("temperature", 0.0f);
  } else {
    set("temperature", defaults.temperature);
  }
  if (defaults.top_k.has_value()) values.emplace("top_k", static_cast<int32_t>(*defaults.top_k));
  set("top_p", defaults.top_p);
  set("min_p", defaults.min_p);
  set("typical_p", defaults.typical_p);
  set("repetition_penalty", defaults.repetition_penalty);
  return values;
}

absl::StatusOr<serving::SamplingParams> ResolveSampling(const SamplingRequest& sampling,
                                                        const model::GenerationDefaults& defaults) {
  serving::SamplingValues values = sampling.values;
  values.merge(ModelDefaults(defaults));  // keeps what the request has
  serving::SamplingParams params;
  SKEIN_RETURN_IF_ERROR(serving::Assign(values, params));
  SKEIN_RETURN_IF_ERROR(CheckBiases(sampling));
  params.logit_bias = sampling.logit_bias;
  return params;
}

}  // namespace skein::coordinator
