// What a tokenizer_config.json and an added_tokens.json say beside a tokenizer.model.
#pragma once

#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "model/tokenizer/added_tokens.h"

namespace skein::model {

struct TokenizerConfig {
  // As transformers has them where the file does not say.
  bool add_bos_token = true;
  bool add_eos_token = false;
  std::vector<AddedToken> added_tokens;
};

// Errors are InvalidArgument, with the field's path.
absl::StatusOr<TokenizerConfig> ParseTokenizerConfig(std::string_view json);

// Tokens and their ids: {"<|im_end|>": 32000}. They are not special.
absl::StatusOr<std::vector<AddedToken>> ParseAddedTokens(std::string_view json);

}  // namespace skein::model
