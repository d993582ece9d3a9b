// The field of a request that holds its prompts: one or a list, of text or token ids.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "coordinator/gateway/body_reader.h"
#include "coordinator/service/request.h"

namespace skein::coordinator {

using PromptInput = decltype(GenerateRequest::input);

// Reads a string, a list of token ids, or a list of either, of at most `most`; at least one, or an
// error of the reader.
std::vector<PromptInput> ReadPrompts(BodyReader& body, std::string_view field, int64_t most);

}  // namespace skein::coordinator
