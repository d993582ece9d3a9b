// What a tokenizer_config.json and an added_tokens.json say beside a tokenizer.model.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "model/tokenizer/added_tokens.h"

namespace skein::model {

struct TokenizerConfig {
  // Where the file does not say, as Llama's tokenizer of transformers 4 has them.
  bool add_bos_token = true;
  bool add_eos_token = false;
  std::string bos_token;  // empty: the model's own, as the next
  std::string eos_token;
  std::optional<bool> add_prefix_space;  // overrides the model's add_dummy_prefix
  // Text behind a special token begins with a space, too, where a text does.
  bool legacy = false;
  std::vector<AddedToken> added_tokens;     // contents and ids differ
  std::vector<std::string> special_tokens;  // contents of those with a role
};

// Errors are InvalidArgument, with the field's path.
absl::StatusOr<TokenizerConfig> ParseTokenizerConfig(std::string_view json);

// Adds what an added_tokens.json says, {"<|im_end|>": 32000}, and `config` does not: tokens that
// are special where they have a role.
absl::Status AddAddedTokens(std::string_view json, TokenizerConfig& config);

// What the two files in a folder say; those that are missing say nothing. Errors begin with the
// path.
absl::StatusOr<TokenizerConfig> LoadTokenizerConfig(const std::string& folder);

}  // namespace skein::model
