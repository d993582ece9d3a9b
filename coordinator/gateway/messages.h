// POST /v1/messages: Anthropic's form of a chat.
#pragma once

#include <memory>

#include "coordinator/gateway/api_call.h"
#include "coordinator/gateway/http_server.h"
#include "coordinator/service/inference_service.h"
#include "coordinator/service/served_model.h"
#include "nlohmann/json.hpp"

namespace skein::coordinator {

// system and messages (texts, or lists of text blocks), max_tokens, stop_sequences, temperature,
// top_p, top_k, stream, and what completions take beyond that. tools are refused: "not yet". Any
// thread.
std::unique_ptr<HttpAnswer> Messages(const nlohmann::json& body, const ServedModel& model,
                                     InferenceService* service, const ApiCall& call);

// POST /v1/messages/count_tokens: {"input_tokens"} of the same fields.
std::unique_ptr<HttpAnswer> CountTokens(const nlohmann::json& body, const ServedModel& model);

}  // namespace skein::coordinator
