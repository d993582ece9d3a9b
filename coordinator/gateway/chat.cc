#include "coordinator/gateway/chat.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "coordinator/gateway/api_answer.h"
#include "coordinator/gateway/api_error.h"
#include "coordinator/gateway/body_reader.h"
#include "coordinator/gateway/chat_prompt.h"
#include "coordinator/gateway/finish_reason.h"
#include "coordinator/gateway/generation_fields.h"
#include "coordinator/gateway/json_answer.h"
#include "coordinator/gateway/token_text.h"

namespace skein::coordinator {
namespace {

using nlohmann::json;
using Json = ApiFormat::Json;

class ChatFormat final : public ApiFormat {
 public:
  ChatFormat(const StreamOptions& options, bool logprobs, bool prompt_logprobs,
             const ServedModel& model, const AnswerName& name)
      : ApiFormat("chatcmpl-", name),
        options_(options),
        logprobs_(logprobs),
        prompt_logprobs_(prompt_logprobs),
        model_(model) {}

  Json Whole(std::vector<Choice>& choices, const TokenUsage& usage) override {
    Json list = Json::array();
    for (Choice& choice : choices) {
      list.push_back(
          {{"index", choice.index},
           {"message",
            {{"role", "assistant"}, {"content", std::move(choice.text)}, {"refusal", nullptr}}},
           {"logprobs", Logprobs(choice)},
           {"finish_reason", Reason(choice)}});
    }
    Json response = Frame("chat.completion", std::move(list));
    response["usage"] = ToJson(usage);
    if (prompt_logprobs_) {
      response["prompt_logprobs"] =
          PromptLogprobs(choices.front().prompt_logprobs, *model_.tokenizer);
    }
    return response;
  }

  void Begin(const Choice& choice, const TokenUsage& /*usage*/, EventStream& out) override {
    out.Say(Chunk(choice, {{"role", "assistant"}, {"content", ""}}, /*logprobs=*/Json(),
                  /*reason=*/Json()));
  }

  void Piece(const Choice& piece, const TokenUsage& /*usage*/, EventStream& out) override {
    if (logprobs_ && !piece.tokens.empty()) {
      out.Say(Chunk(piece, {{"content", piece.text}}, Logprobs(piece), Json()));
    } else if (!piece.text.empty()) {
      const auto chunk = [&] {
        return Chunk({.index = piece.index}, {{"content", ""}}, Json(), Json());
      };
      out.SayText(around_.Of(piece.index, "content", chunk).With(piece.text));
    }
    if (piece.finished.has_value()) {
      out.Say(Chunk(piece, Json::object(), Json(), Reason(piece)));
    }
  }

  void End(const TokenUsage& usage, EventStream& out) override {
    if (options_.include_usage) {
      Json response = Frame("chat.completion.chunk", Json::array());
      response["usage"] = ToJson(usage);
      out.Say(response);
    }
    out.SayDone();
  }

 private:
  Json Frame(const char* object, Json choices) const {
    return {{"id", id_},
            {"object", object},
            {"created", created_},
            {"model", model_.name},
            {"choices", std::move(choices)}};
  }
  Json Chunk(const Choice& choice, Json delta, Json logprobs, Json reason) const {
    return Frame("chat.completion.chunk", Json::array({{{"index", choice.index},
                                                        {"delta", std::move(delta)},
                                                        {"logprobs", std::move(logprobs)},
                                                        {"finish_reason", std::move(reason)}}}));
  }

  static Json Reason(const Choice& choice) {
    return choice.finished.has_value() ? Json(FinishReason(*choice.finished)) : Json();
  }

  Json Logprobs(const Choice& choice) const {
    if (!logprobs_) return Json();
    return {{"content", LogprobRows(choice.tokens, *model_.tokenizer)}};
  }

  const StreamOptions options_;
  const bool logprobs_;
  const bool prompt_logprobs_;
  const ServedModel& model_;
  EventsAround around_;
};

// Whether log probabilities are asked for.
bool ReadLogprobs(BodyReader& body, GenerateRequest& request) {
  const bool logprobs = body.Bool("logprobs").value_or(false);
  const std::optional<int64_t> top = body.Int("top_logprobs", 0, kMaxInt32);
  if (top.has_value() && !logprobs) body.Fail("top_logprobs", "needs logprobs: true");
  if (logprobs) request.sampling.values["logprobs"] = static_cast<int32_t>(top.value_or(0));
  return logprobs;
}

}  // namespace

std::unique_ptr<HttpAnswer> Chat(const json& body, const ServedModel& model,
                                 InferenceService* service, const ApiCall& call) {
  BodyReader reader(body);
  GenerateRequest request = ReadGenerationFields(reader);
  const StreamOptions options = ReadStreamOptions(reader);
  const bool logprobs = ReadLogprobs(reader, request);
  const bool prompt_logprobs = ReadPromptLogprobs(reader, request);
  if (prompt_logprobs && options.stream) {
    reader.Fail("prompt_logprobs", "cannot be streamed in a chat; /v1/completions can");
  }
  std::optional<int64_t> max_tokens = reader.Int("max_completion_tokens", 1, kMaxInt32);
  if (!max_tokens.has_value()) max_tokens = reader.Int("max_tokens", 1, kMaxInt32);
  if (max_tokens.has_value()) request.max_tokens = static_cast<uint32_t>(*max_tokens);
  std::vector<uint32_t> prompt = ReadPrompt(reader, model);
  if (reader.error().has_value()) return ToAnswer(*reader.error());
  return Answer({.common = std::move(request),
                 .prompts = {std::move(prompt)},
                 .stream = options.stream,
                 .input = "messages"},
                std::make_unique<ChatFormat>(options, logprobs, prompt_logprobs, model, call.name),
                service, call);
}

std::unique_ptr<HttpAnswer> ApplyTemplate(const json& body, const ServedModel& model) {
  BodyReader reader(body);
  const Conversation conversation = ReadConversation(reader);
  if (reader.error().has_value()) return ToAnswer(*reader.error());
  const auto prompt = RenderPrompt(conversation, model, absl::Now());
  if (!prompt.ok()) return ToAnswer(ErrorOfTemplate(prompt.status()));
  return JsonAnswer({{"prompt", prompt->text}});
}

}  // namespace skein::coordinator
