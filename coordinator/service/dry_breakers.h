// Where DRY's repeats end: strings as the token sequences of kernels/sampling/dry.h.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "model/tokenizer/tokenizer.h"

namespace skein::coordinator {

// For each string: every token that it stands in, as a sequence of one; and, where it is longer
// than a byte, its spellings over several tokens: the tokenizer's own one, and what ends with its
// beginning before the tokenizer's spelling of the rest. Of these there are at most 256 a string,
// those with the lowest first tokens, which in a byte-pair vocabulary are the most frequent ones.
// Tokens are below `vocabulary`. InvalidArgument, "sampling.dry_breakers[...]: ...": more than 16
// strings, one not of 1 to 32 bytes, or a longer one that is not UTF-8. Cost: for each string,
// linear in the bytes of the vocabulary.
absl::StatusOr<std::vector<std::vector<int32_t>>> ResolveDryBreakers(
    const std::vector<std::string>& breakers, const model::Tokenizer& tokenizer,
    int64_t vocabulary);

}  // namespace skein::coordinator
