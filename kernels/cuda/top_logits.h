// The most likely tokens of rows of logits, and what all of them weigh: most draws, and all log
// probabilities that are asked for, need no more of a row.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "base/stream.h"

namespace skein::kernels::cuda {

inline constexpr int32_t kMaxTopLogits = 1024;

struct TopLogit {
  float logit;
  int32_t id;
};

// For each row the first counts[r] tokens by descending logit, equal ones by ascending id, and the
// sum of e^(logit - the largest one) over all tokens. Tokens of logit -infinity are none of them:
// where there are fewer others, the rest has id -1. A NaN or +infinity in the row makes the sum
// NaN, and the tokens void; without any finite logit the sum is 0. The same bits whatever rows are
// beside.
struct TopLogits {
  int64_t rows = 0;
  int64_t tokens = 0;               // of a row; at most 2^30
  const float* logits = nullptr;    // [rows, tokens], 16-byte aligned
  int64_t logits_stride = 0;        // elements from row to row, a multiple of 4
  int32_t first_id = 0;             // token t of a row has id first_id + t
  const int32_t* counts = nullptr;  // [rows], on the device, else taken as 0 or capacity
  int32_t capacity = 0;             // of a row of top, to 1024
  TopLogit* top = nullptr;          // [rows, capacity]; those behind the count are not written
  float* sums = nullptr;            // [rows]
};

// A block a row: two passes over it; more, where very many tokens are nearly as likely as the last
// one that is wanted.
absl::Status Enqueue(const TopLogits& op, Stream stream);

}  // namespace skein::kernels::cuda
