// Draws from logits that shards of a stage hold parts of. Each shard summarises its part of a row;
// with the summaries of all, each makes the same choice, with the same bits as from the whole row.
// Needs no lock: any thread may call; memory to work in is the thread's, and is kept.
#pragma once

#include <cstdint>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/sampling/device_draw.h"
#include "kernels/sampling/sampling.h"

namespace skein::kernels {

// The vocabulary has so many equal blocks, the last of which may be short or empty. Sums over it
// are made of the blocks' sums, joined as a binary tree, so that they are the same for every number
// of shards that blocks can be given to evenly.
inline constexpr int32_t kVocabularyBlocks = 8;

// A run of the blocks.
struct VocabularyPart {
  int64_t first = 0;  // token
  int64_t block = 0;  // tokens of a block
  int32_t blocks = kVocabularyBlocks;

  static VocabularyPart Whole(int64_t vocabulary) {
    return {.block = (vocabulary + kVocabularyBlocks - 1) / kVocabularyBlocks};
  }
};

constexpr int64_t MaskWords(int64_t vocabulary) { return (vocabulary + 31) / 32; }

// Asks a row of logits for a draw, or what it says of a token.
struct RowQuestion {
  int64_t vocabulary = 0;
  const serving::SamplingParams* sampling = nullptr;  // a draw's, checked; null: there is no draw
  absl::Span<const int32_t> prompt, output;           // a draw's, checked: see CheckTokens
  uint64_t position = 0;                              // a draw's: the output's length
  std::optional<float> mu;
  // A draw's mask, [MaskWords(vocabulary)]: bit t % 32 of word t / 32 says whether token t may be
  // drawn; empty: all may. It comes after all that SamplingParams does before the temperature.
  absl::Span<const uint32_t> mask;
  int32_t token = 0;      // the token that is asked about, where there is no draw
  int32_t logprobs = -1;  // n >= 0: the token's, and the n most likely ones'
};

// Tells whether a draw needs all logits of its row in one place, since no bound holds for the
// tokens that it may take. Other draws have at most kMaxMerged candidates a shard.
inline constexpr int32_t kMaxMerged = 1024;
bool NeedsAllLogits(const RowQuestion& question);

// Says whether all draws with these parameters take the most likely token of logits as they came,
// and tell nothing beside it.
bool TakesMostLikely(const serving::SamplingParams& params);

// Returns the token of a draw that a device has made, or what it has told of the question's token.
// Errors as Sample's.
absl::StatusOr<serving::SampledToken> Take(const RowQuestion& question, const DeviceDraw& draw);

// A summary consists of these, eight bytes each.
struct SummaryCell {
  float value = 0;
  int32_t id = -1;
};
// Returns the number of cells for a part of so many blocks.
int64_t SummaryCells(const RowQuestion& question, int32_t blocks);
// Summarises the part's logits in out [SummaryCells]. The question must not need all logits.
void Summarise(const RowQuestion& question, const VocabularyPart& part,
               absl::Span<const float> logits, SummaryCell* out);
// Answers from `summaries`, every shard's, in shard order. Errors are Sample's.
absl::StatusOr<serving::SampledToken> Decide(const RowQuestion& question, int32_t blocks,
                                             absl::Span<const SummaryCell* const> summaries);

// Answers from the whole row, [vocabulary]. Errors are Sample's.
absl::StatusOr<serving::SampledToken> Answer(const RowQuestion& question,
                                             absl::Span<const float> logits);

}  // namespace skein::kernels
