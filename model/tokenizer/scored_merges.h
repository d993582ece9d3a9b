// SentencePiece's BPE as merges: any two tokens that make a third are joined, the one of the
// highest score first.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "model/tokenizer/bpe.h"

namespace skein::model {

// Longer tokens are never made. Bounds the time that finding merges takes; the longest in use have
// 93 bytes.
inline constexpr size_t kMaxScoredTokenBytes = 128;

struct ScoredMerges {
  std::vector<std::pair<std::string, std::string>> merges;
  std::vector<uint32_t> orders;  // Bpe::CharacterOptions::orders; of equal scores the same
};

// `texts` and `scores` are by id, `vocabulary` are the tokens that may be made. InvalidArgument
// where a score is no number, or there are more than 8 million merges.
absl::StatusOr<ScoredMerges> MergesOfScores(absl::Span<const std::string> texts,
                                            absl::Span<const double> scores,
                                            const Vocabulary& vocabulary);

}  // namespace skein::model
