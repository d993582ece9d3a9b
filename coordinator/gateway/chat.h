// POST /v1/chat/completions, and what its template makes of messages.
#pragma once

#include <memory>

#include "coordinator/gateway/api_call.h"
#include "coordinator/gateway/http_server.h"
#include "coordinator/service/inference_service.h"
#include "coordinator/service/served_model.h"
#include "nlohmann/json.hpp"

namespace skein::coordinator {

// Messages as chat_prompt.h reads them; stream, logprobs and top_logprobs, n, max_completion_tokens
// (or max_tokens), and the samplers of completions. Any thread.
std::unique_ptr<HttpAnswer> Chat(const nlohmann::json& body, const ServedModel& model,
                                 InferenceService* service, const ApiCall& call);

// POST /apply-template: the prompt of messages as {"prompt": text}, as llama.cpp has it.
std::unique_ptr<HttpAnswer> ApplyTemplate(const nlohmann::json& body, const ServedModel& model);

}  // namespace skein::coordinator
