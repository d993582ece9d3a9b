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
#include "coordinator/gateway/response_id.h"
#include "coordinator/gateway/token_text.h"

namespace skein::coordinator {
namespace {

using nlohmann::json;
using Json = ApiFormat::Json;

class ChatFormat final : public ApiFormat {
 public:
  ChatFormat(const StreamOptions& options, bool logprobs, const ServedModel& model)
      : options_(options), logprobs_(logprobs), model_(model) {}

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
    return response;
  }

  std::vector<Json> Begin(const Choice& choice, const TokenUsage& /*usage*/) override {
    return {Chunk(choice, {{"role", "assistant"}, {"content", ""}}, /*logprobs=*/Json(),
                  /*reason=*/Json())};
  }

  std::vector<Json> Piece(const Choice& piece, const TokenUsage& /*usage*/) override {
    std::vector<Json> chunks;
    if (!piece.text.empty() || (logprobs_ && !piece.tokens.empty())) {
      chunks.push_back(Chunk(piece, {{"content", piece.text}}, Logprobs(piece), Json()));
    }
    if (piece.finished.has_value()) {
      chunks.push_back(Chunk(piece, Json::object(), Json(), Reason(piece)));
    }
    return chunks;
  }

  std::optional<Json> End(const TokenUsage& usage) override {
    if (!options_.include_usage) return std::nullopt;
    Json response = Frame("chat.completion.chunk", Json::array());
    response["usage"] = ToJson(usage);
    return response;
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

  Json Token(int32_t id, float logprob) const {
    const std::string text = TokenText(*model_.tokenizer, id);
    Json bytes = Json::array();
    for (const char c : text) bytes.push_back(static_cast<uint8_t>(c));
    return {{"token", text}, {"logprob", logprob}, {"bytes", std::move(bytes)}};
  }
  Json Logprobs(const Choice& choice) const {
    if (!logprobs_) return Json();
    Json content = Json::array();
    for (const AnswerToken& token : choice.tokens) {
      Json row = Token(token.id, token.logprob.value_or(0));
      Json top = Json::array();
      for (const serving::TokenLogprob& of : token.top_logprobs) {
        top.push_back(Token(of.id, of.logprob));
      }
      row["top_logprobs"] = std::move(top);
      content.push_back(std::move(row));
    }
    return {{"content", std::move(content)}};
  }

  const StreamOptions options_;
  const bool logprobs_;
  const ServedModel& model_;
  const std::string id_ = NewResponseId("chatcmpl-");
  const int64_t created_ = absl::ToUnixSeconds(absl::Now());
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

std::unique_ptr<HttpAnswer> Chat(const json& body, InferenceService* service,
                                 const HttpServer::Wake& wake) {
  const ServedModel& model = service->model();
  BodyReader reader(body);
  GenerateRequest request = ReadGenerationFields(reader);
  const StreamOptions options = ReadStreamOptions(reader);
  const bool logprobs = ReadLogprobs(reader, request);
  std::optional<int64_t> max_tokens = reader.Int("max_completion_tokens", 1, kMaxInt32);
  if (!max_tokens.has_value()) max_tokens = reader.Int("max_tokens", 1, kMaxInt32);
  if (max_tokens.has_value()) request.max_tokens = static_cast<uint32_t>(*max_tokens);
  std::vector<uint32_t> prompt = ReadPrompt(reader, model);
  if (reader.error().has_value()) return ToAnswer(*reader.error());
  return Answer({.common = std::move(request),
                 .prompts = {std::move(prompt)},
                 .stream = options.stream,
                 .input = "messages"},
                std::make_unique<ChatFormat>(options, logprobs, model), service, wake);
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
