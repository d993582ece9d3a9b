// Tokens as the APIs show them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "coordinator/service/request.h"
#include "model/tokenizer/tokenizer.h"
#include "nlohmann/json.hpp"

namespace skein::coordinator {

// What a token stands for, special ones as they are written. Parts of a character become U+FFFD
// when this is put into JSON.
std::string TokenText(const model::Tokenizer& tokenizer, int32_t id);

// Each with its text, log probability, bytes and most likely ones in its place, as chats have them.
nlohmann::ordered_json LogprobRows(const std::vector<AnswerToken>& tokens,
                                   const model::Tokenizer& tokenizer);

// Of a prompt whose rows come from its second token on, as vLLM has them: null for the first, and
// for each other one its own and the most likely ones', by id.
nlohmann::ordered_json PromptLogprobs(const std::vector<AnswerToken>& rows,
                                      const model::Tokenizer& tokenizer);

// The number of characters, of text that need not be UTF-8.
int64_t CountCharacters(std::string_view text);

}  // namespace skein::coordinator
