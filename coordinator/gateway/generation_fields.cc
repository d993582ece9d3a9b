#include "coordinator/gateway/generation_fields.h"

#include <cstdint>
#include <limits>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "serving/sampling_fields.h"

namespace skein::coordinator {
namespace {

using nlohmann::json;

// What other servers call a sampling parameter.
std::string_view NameElsewhere(std::string_view name) {
  return name == "repetition_penalty" ? "repeat_penalty" : "";
}

template <typename T>
void ReadSampler(BodyReader& body, std::string_view field, std::string_view name,
                 serving::SamplingValues& values) {
  if constexpr (std::is_same_v<T, float>) {
    if (const auto number = body.Number(field)) values[name] = static_cast<float>(*number);
  } else if constexpr (std::is_same_v<T, int32_t>) {
    if (const auto number = body.Int(field, -1, kMaxInt32)) {
      // vLLM's top_k of -1 is all of them.
      values[name] = name == "top_k" && *number < 0 ? 0 : static_cast<int32_t>(*number);
    }
  } else {
    constexpr int64_t kLow = std::numeric_limits<int64_t>::min();
    constexpr int64_t kHigh = std::numeric_limits<int64_t>::max();
    if (const auto number = body.Int(field, kLow, kHigh)) values[name] = static_cast<T>(*number);
  }
}

// logprobs is no number in chats: each endpoint reads it.
void ReadSamplers(BodyReader& body, serving::SamplingValues& values) {
  serving::SamplingFields::ForEach(
      [&]<typename Params, typename T>(const serving::SamplingField<Params, T>& field) {
        if (field.name == "logprobs") return;
        ReadSampler<T>(body, field.name, field.name, values);
        const std::string_view other = NameElsewhere(field.name);
        if (!other.empty() && !values.contains(field.name)) {
          ReadSampler<T>(body, other, field.name, values);
        }
      });
  // llama.cpp's switch.
  if (const auto version = body.Int("mirostat", 0, 2)) {
    if (*version == 1) body.Fail("mirostat", "version 1 is not supported; 2 is");
    if (*version == 0) values.erase("mirostat_tau");
    if (*version == 2) values.emplace("mirostat_tau", 5.0f);
  }
}

void ReadLogitBias(BodyReader& body, std::vector<serving::TokenBias>& biases) {
  const json* const map = body.Find("logit_bias");
  if (map == nullptr) return;
  if (!map->is_object()) {
    return body.Fail("logit_bias", "an object of token ids and numbers is expected");
  }
  for (const auto& [id, bias] : map->items()) {
    serving::TokenBias& of = biases.emplace_back();
    if (!absl::SimpleAtoi(id, &of.id) || of.id < 0 || !bias.is_number()) {
      return body.Fail("logit_bias", absl::StrCat("\"", id, "\" is no token id with a number"));
    }
    of.bias = bias.get<float>();
  }
}

// A string, or a list of them.
std::optional<std::vector<std::string>> Strings(BodyReader& body, std::string_view field) {
  const json* const value = body.Find(field);
  if (value == nullptr) return std::nullopt;
  if (value->is_string()) return std::vector<std::string>{value->get<std::string>()};
  std::vector<std::string> strings;
  for (const json& item : value->is_array() ? *value : json::array({json()})) {
    if (!item.is_string()) {
      body.Fail(field, "a string, or a list of strings, is expected");
      return std::nullopt;
    }
    strings.push_back(item.get<std::string>());
  }
  return strings;
}

void ReadStopIds(BodyReader& body, std::vector<uint32_t>& stop_ids) {
  const json* const list = body.Find("stop_token_ids");
  if (list == nullptr) return;
  if (std::optional<std::vector<uint32_t>> ids = TokenIdsOf(*list)) {
    stop_ids = *std::move(ids);
  } else {
    body.Fail("stop_token_ids", "a list of token ids is expected");
  }
}

}  // namespace

GenerateRequest ReadGenerationFields(BodyReader& body) {
  GenerateRequest request;
  request.model = body.String("model").value_or("");
  request.n = static_cast<uint32_t>(body.Int("n", 1, kMaxInt32).value_or(1));
  request.priority = static_cast<int32_t>(body.Int("priority", -kMaxInt32, kMaxInt32).value_or(0));
  ReadSamplers(body, request.sampling.values);
  ReadLogitBias(body, request.sampling.logit_bias);
  request.sampling.ignore_eos = body.Bool("ignore_eos").value_or(false);
  request.sampling.dry_breakers = Strings(body, "dry_sequence_breakers");
  request.stops = Strings(body, "stop").value_or(std::vector<std::string>());
  ReadStopIds(body, request.stop_ids);
  return request;
}

bool ReadPromptLogprobs(BodyReader& body, GenerateRequest& request) {
  const auto count = body.Int("prompt_logprobs", 0, kMaxInt32);
  if (!count.has_value()) return false;
  request.prompt_logprobs = static_cast<int32_t>(*count);
  return true;
}

StreamOptions ReadStreamOptions(BodyReader& body) {
  StreamOptions options = {.stream = body.Bool("stream").value_or(false)};
  const json* const more = body.Find("stream_options");
  if (more == nullptr) return options;
  if (more->is_object()) {
    BodyReader of(*more, "stream_options.");
    options.include_usage = of.Bool("include_usage").value_or(false);
    if (of.error()) body.Fail(*of.error());
  } else {
    body.Fail("stream_options", "an object is expected");
  }
  return options;
}

}  // namespace skein::coordinator
