#include "coordinator/gateway/messages.h"

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "coordinator/gateway/api_answer.h"
#include "coordinator/gateway/api_error.h"
#include "coordinator/gateway/body_reader.h"
#include "coordinator/gateway/chat_prompt.h"
#include "coordinator/gateway/generation_fields.h"
#include "coordinator/gateway/json_answer.h"

namespace skein::coordinator {
namespace {

using nlohmann::json;
using Json = ApiFormat::Json;

class MessageFormat final : public ApiFormat {
 public:
  MessageFormat(const ServedModel& model, const AnswerName& name)
      : ApiFormat("msg_", name), model_(model) {}

  Json Whole(std::vector<Choice>& choices, const TokenUsage& usage) override {
    Choice& choice = choices.front();
    Json message = Message(usage);
    message["content"] = Json::array({{{"type", "text"}, {"text", std::move(choice.text)}}});
    if (choice.finished.has_value()) message.update(Stop(*choice.finished));
    return message;
  }

  void Begin(const Choice& /*choice*/, const TokenUsage& usage, EventStream& out) override {
    out.SayNamed({{"type", "message_start"}, {"message", Message({.prompt = usage.prompt})}});
    out.SayNamed({{"type", "content_block_start"},
                  {"index", 0},
                  {"content_block", {{"type", "text"}, {"text", ""}}}});
  }
  void Piece(const Choice& piece, const TokenUsage& usage, EventStream& out) override {
    if (!piece.text.empty()) out.SayNamedText("content_block_delta", delta_.With(piece.text));
    if (!piece.finished.has_value()) return;
    out.SayNamed({{"type", "content_block_stop"}, {"index", 0}});
    out.SayNamed({{"type", "message_delta"},
                  {"delta", Stop(*piece.finished)},
                  {"usage", {{"output_tokens", usage.completion}}}});
  }
  void End(const TokenUsage& /*usage*/, EventStream& out) override {
    out.SayNamed({{"type", "message_stop"}});
  }
  void Fail(const ApiError& error, EventStream& out) override { out.SayNamed(ToJson(error)); }

 private:
  Json Message(const TokenUsage& usage) const {
    return {{"id", id_},
            {"type", "message"},
            {"role", "assistant"},
            {"model", model_.name},
            {"content", Json::array()},
            {"stop_reason", nullptr},
            {"stop_sequence", nullptr},
            {"usage", {{"input_tokens", usage.prompt}, {"output_tokens", usage.completion}}}};
  }
  static Json Stop(const Finished& finished) {
    switch (finished.reason) {
      case Finished::Reason::kEos:
        return {{"stop_reason", "end_turn"}, {"stop_sequence", nullptr}};
      case Finished::Reason::kStop:
        return {{"stop_reason", "stop_sequence"}, {"stop_sequence", finished.stop}};
      case Finished::Reason::kMaxTokens:
        return {{"stop_reason", "max_tokens"}, {"stop_sequence", nullptr}};
    }
    return Json::object();
  }

  const ServedModel& model_;
  const EventAround delta_{{{"type", "content_block_delta"},
                            {"index", 0},
                            {"delta", {{"type", "text_delta"}, {"text", ""}}}},
                           "text"};
};

constexpr ConversationFields kFields = {.system = "system"};

}  // namespace

std::unique_ptr<HttpAnswer> Messages(const json& body, const ServedModel& model,
                                     InferenceService* service, const ApiCall& call) {
  json chat = body;
  if (const auto stops = body.find("stop_sequences"); stops != body.end()) chat["stop"] = *stops;
  chat.erase("n");  // there is one answer
  BodyReader reader(chat);
  GenerateRequest request = ReadGenerationFields(reader);
  const bool stream = reader.Bool("stream").value_or(false);
  const auto max_tokens = reader.Int("max_tokens", 1, kMaxInt32);
  if (!max_tokens.has_value()) reader.Fail("max_tokens", "is missing");
  request.max_tokens = static_cast<uint32_t>(max_tokens.value_or(1));
  std::vector<uint32_t> prompt = ReadPrompt(reader, model, kFields);
  if (reader.error().has_value()) return ToAnswer(*reader.error());
  return Answer({.common = std::move(request),
                 .prompts = {std::move(prompt)},
                 .stream = stream,
                 .input = "messages"},
                std::make_unique<MessageFormat>(model, call.name), service, call);
}

std::unique_ptr<HttpAnswer> CountTokens(const json& body, const ServedModel& model) {
  BodyReader reader(body);
  const std::vector<uint32_t> prompt = ReadPrompt(reader, model, kFields);
  if (reader.error().has_value()) return ToAnswer(*reader.error());
  return JsonAnswer({{"input_tokens", prompt.size()}});
}

}  // namespace skein::coordinator
