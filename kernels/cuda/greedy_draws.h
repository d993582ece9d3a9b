// The most likely token of each row of logits, for draws that take nothing else. The next batch
// finds it on the device; the host gets it with the largest logit, to check and to report.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "base/stream.h"
#include "kernels/cuda/batch_upload.h"

namespace skein::kernels::cuda {

// What the host gets of a row. NaN and no token (-1) where there is a NaN among the logits; equal
// ones give the first.
struct Greatest {
  float logit = 0;
  int32_t id = -1;
};

struct GreedyDraws {
  int32_t draws = 0;
  const SetPair* rows = nullptr;  // [draws], on the device: row of logits, slot
  int64_t tokens = 0;             // of a row
  const float* logits = nullptr;  // 16-byte aligned
  int64_t logits_stride = 0;      // elements from row to row, a multiple of 4
  int32_t first_id = 0;           // token t of a row has id first_id + t
  uint64_t* best = nullptr;     // [draws], 0 at first and afterwards; used by one launch at a time
  uint32_t* arrived = nullptr;  // [draws], likewise
  int32_t* newest_tokens = nullptr;  // by slot; null: they are not put down
  Greatest* greatest = nullptr;      // [draws], also in the host's pinned memory
};

absl::Status Enqueue(const GreedyDraws& op, Stream stream);

}  // namespace skein::kernels::cuda
