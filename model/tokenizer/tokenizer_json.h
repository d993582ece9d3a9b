// Hugging Face's tokenizer.json, as far as published models use it:
//
//   added_tokens    lstrip, rstrip, single_word, normalized
//   normalizer      NFC, NFD, NFKC, NFKD, Lowercase, Strip, Prepend, Replace
//   pre_tokenizer   Split of every behaviour, Digits, Metaspace, and ByteLevel as the last
//   model           BPE of bytes or characters, Unigram; byte_fallback, unk_token, fuse_unk,
//                   ignore_merges
//   post_processor  TemplateProcessing, ByteLevel
//   decoder         ByteLevel; Metaspace, Replace of space marks, ByteFallback, Fuse, Strip of
//   spaces
//
// and Sequences of these. Whatever else would change ids (dropout, truncation, prefixes of
// subwords, other types) answers Unimplemented. An added token's bytes are its content, as written.
#pragma once

#include <memory>
#include <string_view>

#include "absl/status/statusor.h"
#include "model/tokenizer/pipeline_tokenizer.h"

namespace skein::model {

// Errors: InvalidArgument or Unimplemented, with the field's path.
absl::StatusOr<std::unique_ptr<PipelineTokenizer>> ParseTokenizerJson(std::string_view json);

}  // namespace skein::model
