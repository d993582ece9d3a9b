// Draws from logits that shards of a stage hold parts of. Each shard summarises its part of a row;
// with the summaries of all, each makes the same choice, with the same bits as from the whole row.
// Needs no lock: any thread may call; memory to work in is the thread's, and is kept.
#pragma once

#include <cstdint>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/sampling/sampling.h"

namespace skein::kernels {

// The vocabulary in equal blocks, the last of which may be short or empty. Sums over it are made of
// the blocks' sums, joined as a binary tree, so that they are the same for every number of shards
// that blocks can be given to evenly.
inline constexpr int32_t kVocabularyBlocks = 8;

// Some of them, one after the other.
struct VocabularyPart {
  int64_t first = 0;  // token
  int64_t block = 0;  // tokens of a block
  int32_t blocks = kVocabularyBlocks;

  static VocabularyPart Whole(int64_t vocabulary) {
    return {.block = (vocabulary + kVocabularyBlocks - 1) / kVocabularyBlocks};
  }
};

constexpr int64_t MaskWords(int64_t vocabulary) { return (vocabulary + 31) / 32; }

// What is asked of a row of logits: a draw, or what it says of a token.
struct RowQuestion {
  int64_t vocabulary = 0;
  const serving::SamplingParams* sampling = nullptr;  // of a draw, checked; null: there is none
  absl::Span<const int32_t> prompt, output;           // of a draw, checked: see CheckTokens
  uint64_t position = 0;                              // of a draw: the output's length
  std::optional<float> mu;
  // Of a draw: [MaskWords(vocabulary)], bit t % 32 of word t / 32 says whether token t may be
  // drawn; empty: all may. Comes after all that SamplingParams does before the temperature.
  absl::Span<const uint32_t> mask;
  int32_t token = 0;      // where there is no draw
  int32_t logprobs = -1;  // n >= 0: the token's, and the n most likely ones'
};

// Whether a draw needs all logits of its row in one place: where what may be drawn has no bound.
// Others have at most kMaxMerged candidates a shard.
inline constexpr int32_t kMaxMerged = 1024;
bool NeedsAllLogits(const RowQuestion& question);

// All that draws with these parameters look at is so many of the most likely tokens, with logits as
// they came: then their summary is the peak and these, in any order, and may be made elsewhere. 0
// where they need more of a row. At most kMaxMerged.
int32_t TokensLookedAt(const serving::SamplingParams& params);

// Eight bytes of a summary.
struct SummaryCell {
  float value = 0;
  int32_t id = -1;
};
// Of a part of so many blocks.
int64_t SummaryCells(const RowQuestion& question, int32_t blocks);
// `logits`: the part's, out [SummaryCells]. Not for a question that needs all logits.
void Summarise(const RowQuestion& question, const VocabularyPart& part,
               absl::Span<const float> logits, SummaryCell* out);
// `summaries`: every shard's, in shard order. Errors as Sample's.
absl::StatusOr<serving::SampledToken> Decide(const RowQuestion& question, int32_t blocks,
                                             absl::Span<const SummaryCell* const> summaries);

// From the whole row, [vocabulary]. Errors as Sample's.
absl::StatusOr<serving::SampledToken> Answer(const RowQuestion& question,
                                             absl::Span<const float> logits);

}  // namespace skein::kernels
