// Errors as OpenAI's API has them, {"error": {"message", "type", "param", "code"}}, and
// Anthropic's, which has the same and says {"type": "error"} beside it: one form is both.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "coordinator/gateway/http_server.h"
#include "nlohmann/json.hpp"

namespace skein::coordinator {

struct ApiError {
  int status = 400;
  std::string message;
  std::string param;          // the field that is wrong; "": none
  std::string code;           // for programs, where `status` says too little; "": none
  int64_t retry_after_s = 1;  // of 429 and 503
};

// A field that is missing, of another type, or out of range.
ApiError BadField(std::string_view param, std::string_view why);

// What the service refuses, or ended with. Messages of InvalidArgument that begin with a field's
// name ("sampling.top_k: -1 is not in ...") become errors of that field, by its name in this API;
// `input` is that of the prompt.
ApiError ErrorOf(const absl::Status& status, std::string_view input = "prompt");

// Why messages are no prompt: all of it is the client's to mend, but for a model without a
// template. `input` is the messages' field.
ApiError ErrorOfTemplate(const absl::Status& status, std::string_view input = "messages");

nlohmann::ordered_json ToJson(const ApiError& error);
std::unique_ptr<HttpAnswer> ToAnswer(const ApiError& error);

}  // namespace skein::coordinator
