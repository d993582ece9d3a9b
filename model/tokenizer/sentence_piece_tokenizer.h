// A tokenizer.model of SentencePiece (Kudo and Richardson, 2018): BPE by scores or unigram, with
// its normalizer.
#pragma once

#include <memory>
#include <string_view>

#include "absl/status/statusor.h"
#include "model/tokenizer/pipeline_tokenizer.h"
#include "model/tokenizer/tokenizer_config.h"

namespace skein::model {

// `bytes` are the file's. Control pieces are special tokens: text between them is encoded as a text
// of its own. Errors: InvalidArgument; Unimplemented names what is not supported: models of words
// and characters, unused pieces, spaces as suffixes or without marks, denormalizers, and the
// vocabularies of tiktoken, which have this name, too.
absl::StatusOr<std::unique_ptr<PipelineTokenizer>> ParseSentencePieceTokenizer(
    std::string_view bytes, const TokenizerConfig& config);

}  // namespace skein::model
