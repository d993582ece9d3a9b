// OpenAI's Responses API, as far as it keeps no state: each request brings its whole conversation.
#pragma once

#include <memory>

#include "coordinator/gateway/api_call.h"
#include "coordinator/gateway/http_server.h"
#include "coordinator/service/inference_service.h"
#include "coordinator/service/served_model.h"
#include "nlohmann/json.hpp"

namespace skein::coordinator {

// Answers POST /v1/responses: `input` (a text, or messages), `instructions`, `max_output_tokens`,
// `stream`, `include` of log probabilities, and what the samplers have. What would need state
// (previous_response_id, conversation, background), and tools, is refused. Any thread.
std::unique_ptr<HttpAnswer> Responses(const nlohmann::json& body, const ServedModel& model,
                                      InferenceService* service, const ApiCall& call);

}  // namespace skein::coordinator
