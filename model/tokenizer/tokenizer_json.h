// Hugging Face's tokenizer.json:
//
//   { "truncation": null, "padding": null,
//     "added_tokens": [{"id", "content", "special", "lstrip", "rstrip", "single_word",
//     "normalized"}], "normalizer": null | Sequence of nothing, "pre_tokenizer": ByteLevel |
//     Sequence of Split, Digits and a last ByteLevel, "post_processor": null | ByteLevel |
//     TemplateProcessing | Sequence of those, "decoder": ByteLevel, "model": {"type": "BPE",
//     "vocab": {token: id}, "merges": ["a b"] or [["a", "b"]],
//               "ignore_merges"} }
//
// Whatever else would change ids (a normalizer, dropout, byte fallback, other types) answers
// Unimplemented. An added token's bytes are its content, as written.
#pragma once

#include <memory>
#include <string_view>

#include "absl/status/statusor.h"
#include "model/tokenizer/pipeline_tokenizer.h"

namespace skein::model {

// Errors: InvalidArgument or Unimplemented, with the field's path.
absl::StatusOr<std::unique_ptr<PipelineTokenizer>> ParseTokenizerJson(std::string_view json);

}  // namespace skein::model
