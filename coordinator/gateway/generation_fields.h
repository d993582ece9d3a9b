// The fields that completions and chats have in common: how an answer is drawn, and where it ends.
#pragma once

#include "coordinator/gateway/body_reader.h"
#include "coordinator/service/request.h"

namespace skein::coordinator {

// Reads model, n, stop, the samplers and all else that says how answers are drawn, by OpenAI's
// names, and what vLLM and llama.cpp add by theirs, into a request without input and max_tokens.
// Ranges are the service's to check. Errors are the reader's.
GenerateRequest ReadGenerationFields(BodyReader& body);

// Reads vLLM's prompt_logprobs: how many most likely tokens are told in the place of each of the
// prompt's. Whether it is asked for.
bool ReadPromptLogprobs(BodyReader& body, GenerateRequest& request);

struct StreamOptions {
  bool stream = false;
  bool include_usage = false;
};
StreamOptions ReadStreamOptions(BodyReader& body);

}  // namespace skein::coordinator
