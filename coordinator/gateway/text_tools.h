// POST /tokenize and /detokenize: text and token ids, by a model's tokenizer.
#pragma once

#include <memory>

#include "coordinator/gateway/http_server.h"
#include "coordinator/service/served_model.h"
#include "nlohmann/json.hpp"

namespace skein::coordinator {

// {"prompt" or "content": text, "add_special_tokens": true} gives {"tokens", "count",
// "max_model_len"}. Special tokens that are written out in the text count as such only with
// "parse_special": true.
std::unique_ptr<HttpAnswer> Tokenize(const nlohmann::json& body, const ServedModel& model);

// {"tokens": ids} gives {"prompt": text, "content": the same}.
std::unique_ptr<HttpAnswer> Detokenize(const nlohmann::json& body, const ServedModel& model);

}  // namespace skein::coordinator
