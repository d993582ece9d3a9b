// POST /v1/embeddings.
#pragma once

#include <memory>

#include "coordinator/gateway/api_call.h"
#include "coordinator/gateway/http_server.h"
#include "coordinator/service/inference_service.h"
#include "coordinator/service/served_model.h"
#include "nlohmann/json.hpp"

namespace skein::coordinator {

// `input`: text or token ids, one or a list of either. encoding_format is "float" or "base64"
// (little-endian float32). Beyond OpenAI's: `pooling`, "mean" or "last", and `normalize`.
// `dimensions` is refused: no served model was made to be cut. Any thread.
std::unique_ptr<HttpAnswer> Embed(const nlohmann::json& body, const ServedModel& model,
                                  InferenceService* service, const ApiCall& call);

}  // namespace skein::coordinator
