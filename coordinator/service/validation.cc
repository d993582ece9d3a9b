#include "coordinator/service/validation.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/status_macros.h"
#include "base/status_util.h"
#include "coordinator/service/chat_prompt.h"
#include "coordinator/service/dry_breakers.h"
#include "coordinator/service/sampling_params.h"

namespace skein::coordinator {
namespace {

// What the API promises in proto/inference.proto.
constexpr size_t kMaxStops = 16;
constexpr size_t kMaxStopBytes = 1024;
constexpr size_t kMaxStopIds = 256;
constexpr int64_t kMaxAnswers = 16;
constexpr int64_t kMaxPriority = 100;
constexpr int64_t kMaxLogprobs = 20;

absl::Status CheckRange(const std::string& field, int64_t value, int64_t low, int64_t high) {
  if (value >= low && value <= high) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(field, ": ", value, " is not in [", low, ", ", high, "]"));
}

absl::Status CheckStops(const std::vector<std::string>& stops) {
  if (stops.size() > kMaxStops) {
    return absl::InvalidArgumentError(
        absl::StrCat("stop: ", stops.size(), " strings; at most ", kMaxStops, " are allowed"));
  }
  for (size_t i = 0; i < stops.size(); ++i) {
    if (!stops[i].empty() && stops[i].size() <= kMaxStopBytes) continue;
    return absl::InvalidArgumentError(absl::StrCat("stop[", i, "]: ", stops[i].size(),
                                                   " bytes is not in [1, ", kMaxStopBytes, "]"));
  }
  return absl::OkStatus();
}

std::string ContextTooShort(const std::string& what, const ServedModel& model) {
  return absl::StrCat(what, "; the context of ", model.name, " holds ", model.context_length,
                      " tokens, of which at least 1 is left for the answer");
}

absl::StatusOr<std::vector<int32_t>> EncodePrompt(const std::string& text, bool parse_special,
                                                  const ServedModel& model) {
  if (text.empty()) {
    return absl::InvalidArgumentError("prompt: empty; at least 1 byte is needed");
  }
  // Every token stands for at most longest_token_bytes, so that a longer text cannot fit.
  const int64_t most_bytes = (model.context_length - 1) * model.longest_token_bytes;
  if (static_cast<int64_t>(text.size()) > most_bytes) {
    return absl::InvalidArgumentError(
        ContextTooShort(absl::StrCat("prompt: ", text.size(), " bytes are at least ",
                                     1 + (text.size() - 1) / model.longest_token_bytes, " tokens"),
                        model));
  }
  auto tokens = model.tokenizer->Encode(text, {.parse_special = parse_special});
  if (!tokens.ok()) return Annotate(tokens.status(), "prompt");
  return tokens;
}

absl::StatusOr<std::vector<int32_t>> CheckTokenIds(const char* field,
                                                   const std::vector<uint32_t>& ids,
                                                   const ServedModel& model) {
  const auto vocabulary = static_cast<uint64_t>(model.config.vocab_size);
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] < vocabulary) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(field, "[", i, "]: ", ids[i], " is not in [0, ", vocabulary - 1, "]"));
  }
  return std::vector<int32_t>(ids.begin(), ids.end());
}

absl::StatusOr<std::vector<int32_t>> EncodeChat(const Chat& chat, const ServedModel& model) {
  if (chat.messages.empty()) return absl::InvalidArgumentError("chat: no message");
  Conversation conversation;
  for (const Chat::Message& message : chat.messages) {
    conversation.values["messages"].push_back(
        {{"role", message.role}, {"content", message.content}});
  }
  const auto text = RenderPrompt(conversation, model, absl::Now());
  if (!text.ok()) return Annotate(text.status(), "chat");
  const auto ids = EncodePrompt(*text, model);
  if (!ids.ok()) return Annotate(ids.status(), "chat");
  return std::vector<int32_t>(ids->begin(), ids->end());
}

absl::StatusOr<std::vector<int32_t>> PromptTokens(const GenerateRequest& request,
                                                  const ServedModel& model) {
  std::vector<int32_t> tokens;
  const char* field = "prompt_tokens";
  if (const auto* text = std::get_if<std::string>(&request.input)) {
    field = "prompt";
    SKEIN_ASSIGN_OR_RETURN(tokens, EncodePrompt(*text, request.parse_special, model));
  } else if (const auto* ids = std::get_if<std::vector<uint32_t>>(&request.input)) {
    SKEIN_ASSIGN_OR_RETURN(tokens, CheckTokenIds("prompt_tokens.ids", *ids, model));
  } else if (const auto* chat = std::get_if<Chat>(&request.input)) {
    field = "chat";
    SKEIN_ASSIGN_OR_RETURN(tokens, EncodeChat(*chat, model));
  } else {
    return absl::InvalidArgumentError("input: set prompt, prompt_tokens or chat");
  }
  if (tokens.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(field, ": no token; at least 1 is needed"));
  }
  if (static_cast<int64_t>(tokens.size()) >= model.context_length) {
    return absl::InvalidArgumentError(
        ContextTooShort(absl::StrCat(field, ": ", tokens.size(), " tokens"), model));
  }
  return tokens;
}

// Of an embedding's request, which draws nothing.
absl::Status CheckDrawsNothing(const GenerateRequest& request) {
  const char* const field = !request.sampling.values.empty()       ? "sampling"
                            : !request.sampling.logit_bias.empty() ? "sampling.logit_bias"
                            : request.max_tokens.has_value()       ? "max_tokens"
                            : !request.stops.empty()               ? "stop"
                            : !request.stop_ids.empty()            ? "stop_ids"
                            : request.prompt_logprobs.has_value()  ? "prompt_logprobs"
                            : request.n != 1                       ? "n"
                                                                   : nullptr;
  if (field == nullptr) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(field, ": says how text is drawn, and an embedding is asked for"));
}

absl::StatusOr<int32_t> MaxTokens(std::optional<uint32_t> asked, size_t prompt_tokens,
                                  const ServedModel& model) {
  const int64_t left = model.context_length - static_cast<int64_t>(prompt_tokens);
  if (!asked.has_value()) return static_cast<int32_t>(left);
  if (*asked >= 1 && *asked <= left) return static_cast<int32_t>(*asked);
  return absl::InvalidArgumentError(absl::StrCat(
      "max_tokens: ", *asked, " is not in [1, ", left, "]: the context of ", model.name, " holds ",
      model.context_length, " tokens, of which the prompt takes ", prompt_tokens));
}

// The tokens that end an answer: the model's unless they are ignored, and the client's.
absl::StatusOr<std::vector<int32_t>> EndIds(const GenerateRequest& request,
                                            const ServedModel& model) {
  if (request.stop_ids.size() > kMaxStopIds) {
    return absl::InvalidArgumentError(absl::StrCat("stop_ids: ", request.stop_ids.size(),
                                                   " ids; at most ", kMaxStopIds, " are allowed"));
  }
  SKEIN_ASSIGN_OR_RETURN(std::vector<int32_t> ids,
                         CheckTokenIds("stop_ids", request.stop_ids, model));
  const std::vector<int32_t>& eos = model.eos_token_ids;
  if (!request.sampling.ignore_eos) ids.insert(ids.begin(), eos.begin(), eos.end());
  return ids;
}

// What of the sampling needs the vocabulary and the answer's length.
absl::Status CompleteSampling(const SamplingRequest& asked, const ServedModel& model,
                              serving::Request& request) {
  serving::SamplingParams& sampling = request.sampling;
  for (size_t i = 0; i < asked.logit_bias.size(); ++i) {
    SKEIN_RETURN_IF_ERROR(CheckRange(absl::StrCat("sampling.logit_bias[", i, "].id"),
                                     static_cast<uint32_t>(asked.logit_bias[i].id), 0,
                                     model.config.vocab_size - 1));
  }
  if (sampling.min_tokens > request.max_tokens) {
    return absl::InvalidArgumentError(absl::StrCat("sampling.min_tokens: ", sampling.min_tokens,
                                                   " is not in [0, ", request.max_tokens,
                                                   "]: max_tokens is ", request.max_tokens));
  }
  sampling.stop_ids = request.eos_token_ids;
  if (asked.dry_breakers.has_value()) {
    SKEIN_ASSIGN_OR_RETURN(
        sampling.dry_breakers,
        ResolveDryBreakers(*asked.dry_breakers, *model.tokenizer, model.config.vocab_size));
  } else if (sampling.dry_multiplier > 0) {
    sampling.dry_breakers = model.default_dry_breakers;
  }
  if (sampling.dry_multiplier == 0) sampling.dry_breakers.clear();  // nobody needs them
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ValidRequest> Validate(const GenerateRequest& request, const ServedModel& model,
                                      uint64_t random_seed) {
  ValidRequest valid;
  if (request.embedding.has_value()) {
    SKEIN_RETURN_IF_ERROR(CheckDrawsNothing(request));
    valid.request.pooling = request.embedding->pooling;
    valid.normalized = request.embedding->normalized;
  }
  SKEIN_ASSIGN_OR_RETURN(valid.request.sampling, ResolveSampling(request.sampling, model.defaults));
  if (!request.sampling.values.contains("seed")) valid.request.sampling.seed = random_seed;
  SKEIN_RETURN_IF_ERROR(CheckRange("n", request.n, 1, kMaxAnswers));
  valid.request.answers.resize(request.n);
  for (uint32_t i = 0; i < request.n; ++i) {
    valid.request.answers[i].index = static_cast<int32_t>(i);
  }
  SKEIN_RETURN_IF_ERROR(CheckRange("priority", request.priority, -kMaxPriority, kMaxPriority));
  valid.request.priority = request.priority;
  valid.request.deadline = request.deadline;
  if (request.prompt_logprobs.has_value()) {
    SKEIN_RETURN_IF_ERROR(CheckRange("prompt_logprobs", *request.prompt_logprobs, 0, kMaxLogprobs));
    valid.request.prompt_logprobs = *request.prompt_logprobs;
  }
  SKEIN_RETURN_IF_ERROR(CheckStops(request.stops));
  valid.stops = request.stops;
  SKEIN_ASSIGN_OR_RETURN(valid.request.prompt, PromptTokens(request, model));
  if (request.embedding.has_value()) {
    // The most likely token ends the answer, and nobody reads it.
    valid.request.sampling = {.temperature = 0};
    valid.request.max_tokens = 1;
    return valid;
  }
  SKEIN_ASSIGN_OR_RETURN(valid.request.max_tokens,
                         MaxTokens(request.max_tokens, valid.request.prompt.size(), model));
  SKEIN_ASSIGN_OR_RETURN(valid.request.eos_token_ids, EndIds(request, model));
  SKEIN_RETURN_IF_ERROR(CompleteSampling(request.sampling, model, valid.request));
  return valid;
}

}  // namespace skein::coordinator
