// What a tokenizer.json does to a text before its model, and to tokens behind it. Internal to
// tokenizer_json.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "model/tokenizer/added_tokens.h"
#include "model/tokenizer/json_field.h"
#include "model/tokenizer/normalizer.h"
#include "model/tokenizer/pre_tokenizer.h"

namespace skein::model {

// How tokens are spelled; byte_alphabet.h has both.
enum class Spelling {
  kBytes,                // by GPT-2's alphabet
  kCharacters,           // as they are, with marks for spaces
  kCharactersWithBytes,  // the same, but "<0x0A>" is a byte
};

// The processors in `field`, with those of a Sequence in its place; `list` is where the Sequence
// has them.
absl::StatusOr<std::vector<JsonField>> Flatten(const JsonField& field, const std::string& list);

// All but the id.
absl::StatusOr<AddedToken> ReadAddedToken(const JsonField& field);

// The merges of a model of BPE, each of two tokens: in one string ("a b"), or as a pair.
absl::StatusOr<std::vector<std::pair<std::string, std::string>>> ReadMerges(const JsonField& model);

absl::StatusOr<Normalizer> ReadNormalizer(const JsonField& root);

// `spelling` is kBytes or kCharacters, as tokens are made of what is cut.
absl::StatusOr<PreTokenizer> ReadPreTokenizer(const JsonField& root, Spelling& spelling);

// Tokens stand for their bytes, marks in them for spaces. What decoders leave out at a text's begin
// is kept: an answer goes on where its prompt ends. `spelling` becomes kCharactersWithBytes where
// the decoder says so.
absl::Status CheckDecoder(const JsonField& root, Spelling& spelling);

}  // namespace skein::model
