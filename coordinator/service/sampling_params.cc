#include "coordinator/service/sampling_params.h"

#include <cstdint>
#include <limits>
#include <optional>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace skein::coordinator {
namespace {

constexpr int32_t kMaxLogprobs = 20;  // what the API promises in proto/inference.proto

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

}  // namespace

absl::StatusOr<SamplingParams> ResolveSampling(const SamplingRequest& sampling,
                                               const model::GenerationDefaults& defaults) {
  const std::optional<float> none;
  // A model that asks for greedy decoding gets it, unless the request names a temperature.
  const float temperature =
      defaults.do_sample == false ? 0 : static_cast<float>(defaults.temperature.value_or(1));
  SamplingParams params;
  params.temperature = sampling.temperature.value_or(temperature);
  params.top_k = FirstOf(sampling.top_k, defaults.top_k, 0);
  params.top_p = FirstOf(sampling.top_p, defaults.top_p, 1.0f);
  params.min_p = FirstOf(sampling.min_p, defaults.min_p, 0.0f);
  params.repetition_penalty =
      FirstOf(sampling.repetition_penalty, defaults.repetition_penalty, 1.0f);
  params.presence_penalty = FirstOf(sampling.presence_penalty, none, 0.0f);
  params.frequency_penalty = FirstOf(sampling.frequency_penalty, none, 0.0f);
  params.seed = sampling.seed.value_or(0);

  SKEIN_RETURN_IF_ERROR((FloatRange{"temperature", 0, 100}.Check(params.temperature)));
  SKEIN_RETURN_IF_ERROR(CheckInt("top_k", params.top_k, 0, std::numeric_limits<int32_t>::max()));
  SKEIN_RETURN_IF_ERROR((FloatRange{"top_p", 0, 1, /*open=*/true}.Check(params.top_p)));
  SKEIN_RETURN_IF_ERROR((FloatRange{"min_p", 0, 1}.Check(params.min_p)));
  SKEIN_RETURN_IF_ERROR(
      (FloatRange{"repetition_penalty", 0, 100, /*open=*/true}.Check(params.repetition_penalty)));
  SKEIN_RETURN_IF_ERROR((FloatRange{"presence_penalty", -100, 100}.Check(params.presence_penalty)));
  SKEIN_RETURN_IF_ERROR(
      (FloatRange{"frequency_penalty", -100, 100}.Check(params.frequency_penalty)));
  if (sampling.logprobs.has_value()) {
    SKEIN_RETURN_IF_ERROR(CheckInt("logprobs", *sampling.logprobs, 0, kMaxLogprobs));
    params.logprobs = *sampling.logprobs;
  }
  return params;
}

}  // namespace skein::coordinator
