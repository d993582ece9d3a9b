// Draws of tokens from rows of logits. The next batch finds the tokens on the device; the host gets
// them with the largest logit, to check and to report.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "base/stream.h"
#include "kernels/cuda/batch_upload.h"
#include "kernels/sampling/device_draw.h"

namespace skein::kernels::cuda {

// What draws of both kinds read and write.
struct DrawRows {
  int64_t tokens = 0;                // of a row
  const float* logits = nullptr;     // 16-byte aligned
  int64_t logits_stride = 0;         // elements from row to row, a multiple of 4
  int32_t first_id = 0;              // token t of a row has id first_id + t
  int32_t* newest_tokens = nullptr;  // by slot; null: they are not put down
  DeviceDraw* drawn = nullptr;       // [draws], also in the host's pinned memory; -1 where it fails
};

// A token of a part of a vocabulary, in floats, which shards can add to the others' zeros. Ids are
// below 2^24.
struct DrawCandidate {
  float logit = 0;
  float id = 0;
};

// The most likely token of each row as it comes; the first one where several are.
struct GreedyDraws {
  int32_t draws = 0;
  // [draws], on the device: row of logits; slot, or -1 where the token is put down nowhere.
  const SetPair* rows = nullptr;
  DrawRows of;
  uint64_t* best = nullptr;     // [draws], 0 at first and afterwards; used by one launch at a time
  uint32_t* arrived = nullptr;  // [draws], likewise
  DrawCandidate* candidates =
      nullptr;  // [draws]: where tokens of a part of a vocabulary go instead
};

absl::Status Enqueue(const GreedyDraws& op, Stream stream);

// Greedy draws from the candidates of shards, whose parts of the vocabulary follow each other.
struct JoinGreedyDraws {
  int32_t draws = 0;
  const SetPair* rows = nullptr;              // as GreedyDraws has them
  int32_t shards = 0;                         // that have tokens
  const DrawCandidate* candidates = nullptr;  // [shards, draws]
  int32_t* newest_tokens = nullptr;           // by slot
  DeviceDraw* drawn = nullptr;                // as DrawRows has it
};

absl::Status Enqueue(const JoinGreedyDraws& op, Stream stream);

// Puts a shard's part of the rows that draws are made from among zeros: the sum over the shards is
// the rows.
struct SpreadRows {
  int32_t draws = 0;
  const SampledDraw* rows = nullptr;  // [draws], on the device
  DrawRows of;                        // the shard's part; `drawn` and `newest_tokens` are not used
  float* out = nullptr;               // [draws, out_stride], in the order of draws
  int64_t out_stride = 0;
};

absl::Status Enqueue(const SpreadRows& op, Stream stream);

// What the device has of slots' draws.
struct SlotMemory {
  int32_t* histories = nullptr;  // [slots, history_stride]: prompt, then output
  int64_t history_stride = 0;
  // [slots, kSlotEntries]: biases (token, bits of the float), ascending by token; tokens that are
  // left out while the output is short; breakers of DRY of several tokens. These have heads (the
  // last token, the index of what is before it, counted from the first head), ascending by token,
  // then the tokens before the last one (token, how many are before it), from the last to the
  // first.
  SetPair* lists = nullptr;
  float* mus = nullptr;          // [slots], of mirostat
  uint32_t* breakers = nullptr;  // [slots, breaker_words]: bits of tokens that are breakers of DRY
  int64_t breaker_words = 0;     // at least the vocabulary's
};

// A token as kernels/sampling draws it, but for the last bits of sums, and what it tells of log
// probabilities. Weights of tokens are rounded to multiples of 2^-44 of the largest one. Each sum
// has one order: the same row gives the same bits in any launch. The token is put down behind the
// history where the draw remembers it, and mu is.
struct SampledDraws {
  int32_t draws = 0;
  const SampledDraw* rows = nullptr;  // [draws], on the device
  DrawRows of;            // at most kMaxSampledTokens, of a whole vocabulary: first_id 0
  bool in_order = false;  // rows of logits are the draws', in their order
  SlotMemory slots;
  // [draws, mask_words], also in the host's pinned memory: bits of tokens that may be drawn. Null:
  // all may.
  const uint32_t* masks = nullptr;
  int64_t mask_words = 0;
};

// The logits of a row lie in the shared memory of 8 blocks.
inline constexpr int64_t kMaxSampledTokens = int64_t{8} * 48 * 1024;

absl::Status Enqueue(const SampledDraws& op, Stream stream);

}  // namespace skein::kernels::cuda
