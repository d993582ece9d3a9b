// Conversations as prompts: rendered by the model's chat template, and encoded.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "coordinator/service/served_model.h"
#include "model/template/chat_template.h"
#include "nlohmann/json.hpp"

namespace skein::coordinator {

// What a template renders.
struct Conversation {
  nlohmann::ordered_json values;  // the client's: messages, chat_template_kwargs
  bool add_generation_prompt = true;
};

// The prompt's text. FailedPrecondition: the model has no template, or one that cannot be used, and
// why; InvalidArgument and others: ChatTemplate::Render's.
absl::StatusOr<model::RenderedText> RenderPrompt(const Conversation& conversation,
                                                 const ServedModel& model, absl::Time now);

// Its tokens. Special tokens that users wrote are text. InvalidArgument, too, for a text that is
// longer than any context could hold.
absl::StatusOr<std::vector<uint32_t>> EncodePrompt(const model::RenderedText& prompt,
                                                   const ServedModel& model);

}  // namespace skein::coordinator
