// The tokenizer that a GGUF file holds.
//
//   tokenizer.ggml.model    gpt2: byte-level BPE; llama: SentencePiece's BPE, by scores;
//                           gemma4: BPE of characters, by merges
//   tokenizer.ggml.pre      how text is cut before BPE, by the name of a published model
//   tokenizer.ggml.tokens, .token_type, .scores, .merges
//   tokenizer.ggml.add_bos_token, .add_eos_token, .add_space_prefix
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "model/format/gguf_metadata.h"
#include "model/tokenizer/pipeline_tokenizer.h"

namespace skein::model {

// Errors: InvalidArgument with the key, Unimplemented with the name of a model or pre-tokenizer
// that is not known, NotFound where there is no tokenizer.
absl::StatusOr<std::unique_ptr<PipelineTokenizer>> ParseGgufTokenizer(const GgufMetadata& metadata);

}  // namespace skein::model
