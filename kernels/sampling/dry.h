// DRY, "don't repeat yourself", by p-e-w (text-generation-webui, pull request 5677; llama.cpp has
// it, too): the longer the repeat that a token would continue, the less likely it is made.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "serving/sampling_params.h"

namespace skein::kernels {

// Memory that is kept from call to call.
struct DryMemory {
  std::vector<int32_t> tokens;          // the end of the history
  std::vector<int32_t> lengths;         // [tokens]
  std::vector<int32_t> longest;         // by token, all 0 between calls
  std::vector<uint8_t> single;          // by token, all 0 between calls
  std::vector<uint8_t> last_of_longer;  // by token, all 0 between calls
};

// A repeat is a place in the history (prompt, then output) before its end that has the same tokens
// as the end, back to the last breaker; its length is in tokens. Subtracts from the logit of every
// token that once followed a repeat min(dry_multiplier * dry_base^(length - dry_allowed_length),
// 1e30), for the longest one. Token first + i has logits[i]; others are passed over. Cost: linear
// in the history and the breakers; breakers of several tokens are tried wherever the last of them
// stands.
void PenaliseRepeats(const serving::SamplingParams& params, absl::Span<const int32_t> prompt,
                     absl::Span<const int32_t> output, int32_t first, absl::Span<float> logits,
                     DryMemory& memory);

// Returns a length, of at least dry_allowed_length tokens, from which on all repeats cost the same.
int32_t LongestRepeatThatCounts(const serving::SamplingParams& params);

// Sets lengths[i] to how many tokens right before tokens[i] are those that `tokens` ends with. The
// Z-algorithm (Gusfield, 1997) runs from the end: fewer than 2 comparisons a token.
template <typename Token>
void RepeatsBefore(absl::Span<const Token> tokens, std::vector<int32_t>& lengths) {
  const size_t size = tokens.size();
  lengths.assign(size, 0);
  const auto from_end = [&](size_t i) -> const Token& { return tokens[size - 1 - i]; };
  // The repeat that reaches furthest, [begin, end), counted from the end as all indices here.
  size_t begin = 0;
  size_t end = 0;
  for (size_t i = 1; i < size; ++i) {
    size_t length = 0;
    if (i < end) length = std::min<size_t>(lengths[size - (i - begin)], end - i);
    if (i + length >= end) {
      while (i + length < size && from_end(length) == from_end(i + length)) ++length;
      begin = i;
      end = i + length;
    }
    lengths[size - i] = static_cast<int32_t>(length);
  }
}

}  // namespace skein::kernels
