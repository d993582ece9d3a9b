// A folder's tokenizer as a GGUF file says it: the other way of gguf_tokenizer.h.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "model/format/gguf_metadata.h"

namespace skein::model {

// Keys of the vocabulary of `folder` (tokenizer.json, or a tokenizer.model of BPE), padded to
// `vocab_size` tokens, as llama.cpp's converter writes them. Unimplemented names what files have no
// word for; a tokenizer that is read back and gives other ids for some texts is refused, too.
// NotFound: there is no tokenizer. Files say less than tokenizers in three things: NFC, white space
// that an added token takes, and that text behind a special token begins without a space.
absl::StatusOr<GgufMetadata::Values> MakeGgufVocabulary(const std::string& folder,
                                                        int64_t vocab_size);

}  // namespace skein::model
