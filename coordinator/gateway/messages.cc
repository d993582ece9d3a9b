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
#include "coordinator/gateway/response_id.h"

namespace skein::coordinator {
namespace {

using nlohmann::json;
using Json = ApiFormat::Json;

class MessageFormat final : public ApiFormat {
 public:
  explicit MessageFormat(const ServedModel& model) : model_(model) {}

  Json Whole(std::vector<Choice>& choices, const TokenUsage& usage) override {
    Choice& choice = choices.front();
    Json message = Message(usage);
    message["content"] = Json::array({{{"type", "text"}, {"text", std::move(choice.text)}}});
    if (choice.finished.has_value()) message.update(Stop(*choice.finished));
    return message;
  }

  std::vector<Json> Begin(const Choice& /*choice*/, const TokenUsage& usage) override {
    return {{{"type", "message_start"}, {"message", Message({.prompt = usage.prompt})}},
            {{"type", "content_block_start"},
             {"index", 0},
             {"content_block", {{"type", "text"}, {"text", ""}}}}};
  }
  std::vector<Json> Piece(const Choice& piece, const TokenUsage& usage) override {
    std::vector<Json> events;
    if (!piece.text.empty()) {
      events.push_back({{"type", "content_block_delta"},
                        {"index", 0},
                        {"delta", {{"type", "text_delta"}, {"text", piece.text}}}});
    }
    if (piece.finished.has_value()) {
      events.push_back({{"type", "content_block_stop"}, {"index", 0}});
      events.push_back({{"type", "message_delta"},
                        {"delta", Stop(*piece.finished)},
                        {"usage", {{"output_tokens", usage.completion}}}});
    }
    return events;
  }
  std::optional<Json> End(const TokenUsage& /*usage*/) override {
    return Json{{"type", "message_stop"}};
  }
  bool names_events() const override { return true; }

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
  const std::string id_ = NewResponseId("msg_");
};

// The messages as OpenAI has them: the system's comes first.
json WithSystem(const json& body) {
  json chat = body;
  const auto system = body.find("system");
  if (system == body.end() || system->is_null() || !body.contains("messages") ||
      !body["messages"].is_array()) {
    return chat;
  }
  json& messages = chat["messages"];
  messages.insert(messages.begin(), json{{"role", "system"}, {"content", *system}});
  return chat;
}

}  // namespace

std::unique_ptr<HttpAnswer> Messages(const json& body, InferenceService* service,
                                     const HttpServer::Wake& wake) {
  const ServedModel& model = service->model();
  json chat = WithSystem(body);
  if (const auto stops = body.find("stop_sequences"); stops != body.end()) chat["stop"] = *stops;
  chat.erase("n");  // there is one answer
  BodyReader reader(chat);
  GenerateRequest request = ReadGenerationFields(reader);
  const bool stream = reader.Bool("stream").value_or(false);
  const auto max_tokens = reader.Int("max_tokens", 1, kMaxInt32);
  if (!max_tokens.has_value()) reader.Fail("max_tokens", "is missing");
  request.max_tokens = static_cast<uint32_t>(max_tokens.value_or(1));
  std::vector<uint32_t> prompt = ReadPrompt(reader, model);
  if (reader.error().has_value()) return ToAnswer(*reader.error());
  return Answer({.common = std::move(request),
                 .prompts = {std::move(prompt)},
                 .stream = stream,
                 .input = "messages"},
                std::make_unique<MessageFormat>(model), service, wake);
}

std::unique_ptr<HttpAnswer> CountTokens(const json& body, const ServedModel& model) {
  const json chat = WithSystem(body);
  BodyReader reader(chat);
  const std::vector<uint32_t> prompt = ReadPrompt(reader, model);
  if (reader.error().has_value()) return ToAnswer(*reader.error());
  return JsonAnswer({{"input_tokens", prompt.size()}});
}

}  // namespace skein::coordinator
