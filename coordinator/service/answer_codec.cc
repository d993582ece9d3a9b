#include "coordinator/service/answer_codec.h"

#include <exception>
#include <optional>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"
#include "serving/sampling_fields.h"

namespace skein::coordinator {
namespace {

using json = nlohmann::json;

enum Kind : int { kAccepted, kTokens, kFinished, kError };

std::string Bytes(const json& value) {
  std::string bytes;
  json::to_cbor(value, bytes);
  return bytes;
}

json Binary(const std::string& bytes) {
  return json::binary(std::vector<uint8_t>(bytes.begin(), bytes.end()));
}
std::string FromBinary(const json& value) {
  const auto& bytes = value.get_binary();
  return std::string(bytes.begin(), bytes.end());
}

int64_t Nanoseconds(absl::Duration duration) { return absl::ToInt64Nanoseconds(duration); }
absl::Duration DurationOf(const json& value) { return absl::Nanoseconds(value.get<int64_t>()); }

// A number, or with log probabilities: id, its own, then id and log probability of each other one.
json TokensJson(const std::vector<AnswerToken>& tokens) {
  json list = json::array();
  for (const AnswerToken& token : tokens) {
    if (!token.logprob.has_value()) {
      list.push_back(token.id);
      continue;
    }
    json row = json::array({token.id, *token.logprob});
    for (const serving::TokenLogprob& top : token.top_logprobs) {
      row.push_back(top.id);
      row.push_back(top.logprob);
    }
    list.push_back(std::move(row));
  }
  return list;
}
std::vector<AnswerToken> TokensOf(const json& list) {
  std::vector<AnswerToken> tokens;
  for (const json& row : list) {
    AnswerToken& token = tokens.emplace_back();
    if (row.is_number()) {
      token.id = row.get<int32_t>();
      continue;
    }
    token.id = row.at(0).get<int32_t>();
    token.logprob = row.at(1).get<float>();
    for (size_t i = 2; i < row.size(); i += 2) {
      token.top_logprobs.push_back({row.at(i).get<int32_t>(), row.at(i + 1).get<float>()});
    }
  }
  return tokens;
}

json ToJson(int32_t part, const Accepted& accepted) {
  return json::array({kAccepted, part, accepted.request_id, accepted.prompt_tokens, accepted.seed,
                      accepted.max_tokens, accepted.n});
}
json ToJson(int32_t part, const Tokens& tokens) {
  const Tokens::State& state = tokens.state;
  json list = json::array({kTokens, part, tokens.answer, tokens.text, TokensJson(tokens.tokens),
                           state.cached_tokens, Nanoseconds(state.queue_time),
                           Nanoseconds(state.first_token_time)});
  if (state.mu.has_value() || !tokens.prompt_logprobs.empty()) {
    list.push_back(state.mu.has_value() ? json(*state.mu) : json());
    list.push_back(TokensJson(tokens.prompt_logprobs));
  }
  return list;
}
json ToJson(int32_t part, const Finished& finished) {
  const Usage& usage = finished.usage;
  return json::array({kFinished, part, finished.answer, static_cast<int>(finished.reason),
                      Binary(finished.stop), usage.prompt_tokens, usage.completion_tokens,
                      usage.cached_tokens, Nanoseconds(usage.queue_time),
                      Nanoseconds(usage.first_token_time), Nanoseconds(usage.total_time)});
}
json ToJson(int32_t part, const absl::Status& status) {
  return json::array(
      {kError, part, static_cast<int>(status.code()), std::string(status.message())});
}

Event EventOf(const json& list) {
  switch (list.at(0).get<int>()) {
    case kAccepted:
      return Accepted{.request_id = list.at(2).get<std::string>(),
                      .prompt_tokens = list.at(3).get<uint32_t>(),
                      .seed = list.at(4).get<uint64_t>(),
                      .max_tokens = list.at(5).get<uint32_t>(),
                      .n = list.at(6).get<uint32_t>()};
    case kTokens: {
      Tokens tokens{.answer = list.at(2).get<int32_t>(),
                    .text = list.at(3).get<std::string>(),
                    .tokens = TokensOf(list.at(4)),
                    .prompt_logprobs = {},
                    .state = {.mu = {},
                              .cached_tokens = list.at(5).get<int64_t>(),
                              .queue_time = DurationOf(list.at(6)),
                              .first_token_time = DurationOf(list.at(7))}};
      if (list.size() > 8) {
        if (!list.at(8).is_null()) tokens.state.mu = list.at(8).get<float>();
        tokens.prompt_logprobs = TokensOf(list.at(9));
      }
      return tokens;
    }
    case kFinished:
      return Finished{.answer = list.at(2).get<int32_t>(),
                      .reason = static_cast<Finished::Reason>(list.at(3).get<int>()),
                      .stop = FromBinary(list.at(4)),
                      .usage = {.prompt_tokens = list.at(5).get<uint32_t>(),
                                .completion_tokens = list.at(6).get<uint32_t>(),
                                .cached_tokens = list.at(7).get<uint32_t>(),
                                .queue_time = DurationOf(list.at(8)),
                                .first_token_time = DurationOf(list.at(9)),
                                .total_time = DurationOf(list.at(10))}};
    default:
      return absl::Status(static_cast<absl::StatusCode>(list.at(2).get<int>()),
                          list.at(3).get<std::string>());
  }
}

json SamplingJson(const serving::SamplingParams& sampling) {
  json out = json::object();
  serving::SamplingFields::ForEach(
      [&](const auto& field) { out[std::string(field.name)] = sampling.*field.member; });
  json& bias = out["logit_bias"] = json::array();
  for (const serving::TokenBias& of : sampling.logit_bias) bias.push_back({of.id, of.bias});
  out["stop_ids"] = sampling.stop_ids;
  out["dry_breakers"] = sampling.dry_breakers;
  return out;
}
serving::SamplingParams SamplingOf(const json& in) {
  serving::SamplingParams sampling;
  serving::SamplingFields::ForEach(
      [&]<typename Params, typename T>(const serving::SamplingField<Params, T>& field) {
        sampling.*field.member = in.at(std::string(field.name)).template get<T>();
      });
  for (const json& of : in.at("logit_bias")) {
    sampling.logit_bias.push_back({of.at(0).get<int32_t>(), of.at(1).get<float>()});
  }
  sampling.stop_ids = in.at("stop_ids").get<std::vector<int32_t>>();
  sampling.dry_breakers = in.at("dry_breakers").get<std::vector<std::vector<int32_t>>>();
  return sampling;
}

absl::Status Broken(const char* what, const std::exception& thrown) {
  return absl::DataLossError(absl::StrCat(what, " of the journal cannot be read: ", thrown.what()));
}

}  // namespace

std::string EncodeEvent(int32_t part, const Event& event) {
  return Bytes(std::visit([&](const auto& of) { return ToJson(part, of); }, event));
}

absl::StatusOr<PartEvent> DecodeEvent(const std::string& bytes) {
  try {
    const json list = json::from_cbor(bytes);
    return PartEvent{.part = list.at(1).get<int32_t>(), .event = EventOf(list)};
  } catch (const std::exception& thrown) {
    return Broken("an event", thrown);
  }
}

std::string EncodeRequest(const ValidRequest& valid) {
  const serving::Request& request = valid.request;
  json out = {{"prompt", request.prompt},
              {"answers", request.answers.size()},
              {"max_tokens", request.max_tokens},
              {"eos_token_ids", request.eos_token_ids},
              {"priority", request.priority},
              {"prompt_logprobs", request.prompt_logprobs},
              {"sampling", SamplingJson(request.sampling)},
              {"deadline", json()},
              {"stops", json::array()}};
  if (request.deadline != absl::InfiniteFuture()) {
    out["deadline"] = absl::ToUnixNanos(request.deadline);
  }
  for (const std::string& stop : valid.stops) out["stops"].push_back(Binary(stop));
  return Bytes(out);
}

absl::StatusOr<ValidRequest> DecodeRequest(const std::string& bytes) {
  try {
    const json in = json::from_cbor(bytes);
    ValidRequest valid;
    serving::Request& request = valid.request;
    request.prompt = in.at("prompt").get<std::vector<int32_t>>();
    request.answers.resize(in.at("answers").get<size_t>());
    for (size_t i = 0; i < request.answers.size(); ++i) {
      request.answers[i].index = static_cast<int32_t>(i);
    }
    request.max_tokens = in.at("max_tokens").get<int32_t>();
    request.eos_token_ids = in.at("eos_token_ids").get<std::vector<int32_t>>();
    request.priority = in.at("priority").get<int32_t>();
    request.prompt_logprobs = in.at("prompt_logprobs").get<int32_t>();
    request.sampling = SamplingOf(in.at("sampling"));
    const json& deadline = in.at("deadline");
    if (!deadline.is_null()) request.deadline = absl::FromUnixNanos(deadline.get<int64_t>());
    for (const json& stop : in.at("stops")) valid.stops.push_back(FromBinary(stop));
    return valid;
  } catch (const std::exception& thrown) {
    return Broken("a request", thrown);
  }
}

}  // namespace skein::coordinator
