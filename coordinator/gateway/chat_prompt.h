// Conversations in requests of the APIs.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "coordinator/gateway/body_reader.h"
#include "coordinator/service/chat_prompt.h"
#include "coordinator/service/served_model.h"

namespace skein::coordinator {

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

// All of it: what a body's conversation is in tokens. Errors are the reader's.
std::vector<uint32_t> ReadPrompt(BodyReader& body, const ServedModel& model,
                                 const ConversationFields& fields = {});

}  // namespace skein::coordinator
