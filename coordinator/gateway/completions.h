// POST /v1/completions.
#pragma once

#include <memory>

#include "coordinator/gateway/api_call.h"
#include "coordinator/gateway/http_server.h"
#include "coordinator/service/inference_service.h"
#include "coordinator/service/served_model.h"
#include "nlohmann/json.hpp"

namespace skein::coordinator {

// Texts or token ids, one or a list of either; echo, logprobs, n, best_of, stream. `suffix` is
// refused. As with OpenAI, an answer has 16 tokens unless max_tokens says otherwise; 0 of them are
// allowed with echo, which gives the prompt's log probabilities alone. In a stream each answer
// begins with what is known of its prompt. Any thread.
std::unique_ptr<HttpAnswer> Complete(const nlohmann::json& body, const ServedModel& model,
                                     InferenceService* service, const ApiCall& call);

}  // namespace skein::coordinator
