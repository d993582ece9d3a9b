// Turns DRY's sequence breakers, which are strings, into the token sequences of
// kernels/sampling/dry.h.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "model/tokenizer/tokenizer.h"

namespace skein::coordinator {

// Returns, for each string, every token that contains it, as a sequence of one. For a string longer
// than a byte it adds spellings over several tokens: the tokenizer's own one, and each token that
// ends with the string's beginning, followed by the tokenizer's spelling of the rest. There are at
// most 256 of the latter per string, those with the lowest first tokens, which in a byte-pair
// vocabulary are the most frequent ones. Tokens are below `vocabulary`. InvalidArgument,
// "sampling.dry_breakers[...]: ...": more than 16 strings, one not of 1 to 32 bytes, or a longer
// one that is not UTF-8. Cost: for each string, linear in the bytes of the vocabulary.
absl::StatusOr<std::vector<std::vector<int32_t>>> ResolveDryBreakers(
    const std::vector<std::string>& breakers, const model::Tokenizer& tokenizer,
    int64_t vocabulary);

}  // namespace skein::coordinator
