// A text's tokens.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace skein::worker {

struct TextTokens {
  std::vector<int32_t> ids;      // of the text alone; what is written like a special token is text
  std::optional<int32_t> begin;  // with which the model's texts begin
};

// Of the UTF-8 text in `file`, by the vocabulary of `model`, a folder or a GGUF file; at most the
// first `most_tokens`, 0: all. Errors name the file.
absl::StatusOr<TextTokens> ReadTextTokens(const std::string& model, const std::string& file,
                                          int64_t most_tokens);

}  // namespace skein::worker
