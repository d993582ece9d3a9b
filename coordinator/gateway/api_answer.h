// Answers requests of the APIs with what the service generates.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <string_view>
#include <vector>

#include "coordinator/gateway/api_call.h"
#include "coordinator/gateway/api_format.h"
#include "coordinator/gateway/http_server.h"
#include "coordinator/service/inference_service.h"
#include "coordinator/service/request.h"

namespace skein::coordinator {

struct ApiRequest {
  GenerateRequest common;                                 // of all prompts, without input
  std::vector<decltype(GenerateRequest::input)> prompts;  // at least one
  bool stream = false;
  std::string_view input = "prompt";  // the field that the prompts come from, for errors
  // So many prompts are with the service at once, and the others follow as these end. The queue may
  // have less room than that, but for the first.
  int64_t most_at_once = std::numeric_limits<int64_t>::max();
};

// Admits the prompts, or goes on with a kept answer; what the service refuses, or a failure before
// the first token, is an error answer. A stream is server-sent events: data: JSON, [DONE] at the
// end, an error as one of them. A client that goes away ends its generations, unless the stream is
// kept: then it can come back, and events are numbered. `format` makes the JSON, and may refer to
// the model, which generations and kept answers keep. The service outlives the answer. Any thread.
std::unique_ptr<HttpAnswer> Answer(const ApiRequest& request, std::unique_ptr<ApiFormat> format,
                                   InferenceService* service, const ApiCall& call);

}  // namespace skein::coordinator
