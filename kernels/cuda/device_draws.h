// Draws of tokens from rows of logits as they come. The next batch finds the tokens on the device;
// the host gets them with the largest logit, to check and to report.
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

// The most likely token of each row; the first one where several are.
struct GreedyDraws {
  int32_t draws = 0;
  const SetPair* rows = nullptr;  // [draws], on the device: row of logits, slot
  DrawRows of;
  uint64_t* best = nullptr;     // [draws], 0 at first and afterwards; used by one launch at a time
  uint32_t* arrived = nullptr;  // [draws], likewise
};

absl::Status Enqueue(const GreedyDraws& op, Stream stream);

// A token by chance: tokens in descending order of their logits, equal ones by id, have the weight
// e^((logit - largest) / temperature), in double. top_k keeps the first so many, top_p of those the
// fewest that have at least this share of their weight, min_p those with at least this share of the
// largest weight. Drawn is the first one up to which the weights exceed `uniform` times their sum.
// As kernels/sampling draws, but for the last bits of sums.
struct RandomDraws {
  int32_t draws = 0;
  const RandomDraw* rows = nullptr;  // [draws], on the device
  DrawRows of;                       // at most kMaxRandomTokens
};

// The logits of a row lie in the shared memory of 8 blocks.
inline constexpr int64_t kMaxRandomTokens = int64_t{8} * 48 * 1024;

absl::Status Enqueue(const RandomDraws& op, Stream stream);

}  // namespace skein::kernels::cuda
