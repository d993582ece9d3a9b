#include "coordinator/gateway/chat_prompt.h"

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "coordinator/gateway/api_error.h"

namespace skein::coordinator {
namespace {

using nlohmann::json;
using Json = nlohmann::ordered_json;

// Parts of a message are lines, as vLLM joins them.
std::optional<std::string> JoinParts(const json& parts, std::string_view field,
                                     BodyReader& message) {
  std::string text;
  for (const json& part : parts) {
    const json type = part.is_object() ? part.value("type", json()) : json();
    const bool is_text = (type == "text" || type == "input_text" || type == "output_text") &&
                         part.contains("text") && part["text"].is_string();
    if (!is_text) {
      message.Fail(field,
                   "parts are objects {\"type\": \"text\", \"text\": ...}; images, "
                   "audio and files are not supported");
      return std::nullopt;
    }
    if (!text.empty()) text += '\n';
    text += part["text"].get<std::string>();
  }
  return text;
}

// A text, or a list of text parts. null: it is neither.
Json ReadContent(const json& content, std::string_view field, BodyReader& reader) {
  if (content.is_string()) return content;
  if (content.is_array()) {
    const std::optional<std::string> text = JoinParts(content, field, reader);
    return text.has_value() ? Json(*text) : Json();
  }
  reader.Fail(field, "a string, or a list of text parts, is expected");
  return {};
}

Json ReadMessage(const json& message, const std::string& where, BodyReader& body) {
  if (!message.is_object()) {
    body.Fail(where, "an object is expected");
    return {};
  }
  BodyReader reader(message, where + ".");
  const std::optional<std::string> role = reader.String("role");
  if (!role.has_value()) reader.Fail("role", "is missing");
  Json read(message);
  if (role == "developer") read["role"] = "system";
  if (const json* const content = reader.Find("content")) {
    read["content"] = ReadContent(*content, "content", reader);
  } else {
    // An assistant may have called tools instead.
    if (!message.contains("tool_calls")) reader.Fail("content", "is missing");
    read["content"] = nullptr;
  }
  if (reader.error()) body.Fail(*reader.error());
  return read;
}

// A message of the Responses API, without what that API alone knows of it (ids, states).
Json ReadItem(const json& item, const std::string& where, BodyReader& body) {
  const json type = item.is_object() ? item.value("type", json("message")) : json();
  if (item.is_object() && type != "message") {
    body.Fail(where, "not yet: only items of the type \"message\" are supported");
    return {};
  }
  Json read = ReadMessage(item, where, body);
  if (!read.is_object()) return {};
  return {{"role", read["role"]}, {"content", read["content"]}};
}

Json ReadMessages(BodyReader& body, const ConversationFields& fields) {
  Json messages = Json::array();
  if (const json* const system = fields.system.empty() ? nullptr : body.Find(fields.system)) {
    messages.push_back(
        {{"role", "system"}, {"content", ReadContent(*system, fields.system, body)}});
  }
  const json* const list = body.Find(fields.messages);
  if (list != nullptr && fields.items && list->is_string()) {
    messages.push_back({{"role", "user"}, {"content", *list}});
    return messages;
  }
  if (list == nullptr || !list->is_array() || list->empty()) {
    body.Fail(fields.messages, list == nullptr ? "is missing" : "a list of messages is expected");
    return {};
  }
  for (size_t i = 0; i < list->size(); ++i) {
    const std::string where = absl::StrCat(std::string(fields.messages), "[", i, "]");
    messages.push_back(fields.items ? ReadItem((*list)[i], where, body)
                                    : ReadMessage((*list)[i], where, body));
  }
  return messages;
}

// What is known, and not served yet.
void RefuseTools(BodyReader& body) {
  for (const char* field : {"tools", "functions"}) {
    const json* const tools = body.Find(field);
    if (tools != nullptr && !(tools->is_array() && tools->empty())) {
      body.Fail(field, "not yet: tools are not supported");
    }
  }
  const json* const format = body.Find("response_format");
  if (format == nullptr) return;
  if (!format->is_object() || format->value("type", json()) != "text") {
    body.Fail("response_format", "not yet: only {\"type\": \"text\"} is supported");
  }
}

}  // namespace

Conversation ReadConversation(BodyReader& body, const ConversationFields& fields) {
  RefuseTools(body);
  Conversation conversation;
  if (const json* const kwargs = body.Find("chat_template_kwargs")) {
    if (kwargs->is_object()) {
      conversation.values = Json(*kwargs);
    } else {
      body.Fail("chat_template_kwargs", "an object is expected");
    }
  }
  if (const json* const documents = body.Find("documents")) {
    conversation.values["documents"] = Json(*documents);
  }
  conversation.values["messages"] = ReadMessages(body, fields);
  conversation.add_generation_prompt = body.Bool("add_generation_prompt").value_or(true);
  return conversation;
}

std::vector<uint32_t> ReadPrompt(BodyReader& body, const ServedModel& model,
                                 const ConversationFields& fields) {
  const Conversation conversation = ReadConversation(body, fields);
  if (body.error().has_value()) return {};
  const auto prompt = RenderPrompt(conversation, model, absl::Now());
  if (!prompt.ok()) {
    body.Fail(ErrorOfTemplate(prompt.status(), fields.messages));
    return {};
  }
  absl::StatusOr<std::vector<uint32_t>> tokens = EncodePrompt(*prompt, model);
  if (tokens.ok()) return *std::move(tokens);
  body.Fail(ErrorOf(tokens.status(), fields.messages));
  return {};
}

}  // namespace skein::coordinator
