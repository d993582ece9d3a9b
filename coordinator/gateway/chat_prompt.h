// Conversations as prompts: what a chat's fields say, rendered by the model's template and encoded.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "coordinator/gateway/body_reader.h"
#include "coordinator/service/served_model.h"
#include "model/template/chat_template.h"
#include "nlohmann/json.hpp"

namespace skein::coordinator {

// What a template renders.
struct Conversation {
  nlohmann::ordered_json values;  // the client's: messages, chat_template_kwargs
  bool add_generation_prompt = true;
};

// Where an API has a conversation.
struct ConversationFields {
  std::string_view messages = "messages";
  std::string_view system;  // the field of what the system says, before the messages; "": none
  // Messages are items of several types, of which only "message" is supported; one text is a
  // message of the user.
  bool items = false;
};

// Reads messages (texts, or lists of text parts; the role "developer" is "system"),
// chat_template_kwargs, documents and add_generation_prompt. tools, and a response_format other
// than text, are refused: "not yet". Errors are the reader's.
Conversation ReadConversation(BodyReader& body, const ConversationFields& fields = {});

// The prompt's text. FailedPrecondition: the model has no template, or one that cannot be used, and
// why; InvalidArgument and others: ChatTemplate::Render's.
absl::StatusOr<model::RenderedText> RenderPrompt(const Conversation& conversation,
                                                 const ServedModel& model, absl::Time now);

// All of it: what a body's conversation is in tokens. Errors are the reader's.
std::vector<uint32_t> ReadPrompt(BodyReader& body, const ServedModel& model,
                                 const ConversationFields& fields = {});

// Its tokens. Special tokens that users wrote are text. InvalidArgument, too, for a text that is
// longer than any context could hold.
absl::StatusOr<std::vector<uint32_t>> EncodePrompt(const model::RenderedText& prompt,
                                                   const ServedModel& model);

}  // namespace skein::coordinator
