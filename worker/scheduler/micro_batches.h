// Cuts a step's rows into micro-batches.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "worker/scheduler/schedule.h"

namespace skein::worker {

// The rows of a sequence in a step.
struct RowShare {
  const SequenceView* sequence = nullptr;
  int64_t rows = 0;
};

inline bool Decodes(const SequenceView& sequence) {
  return sequence.length - sequence.computed == 1;
}

// `shares` in the scheduler's order. None of the micro-batches has more than max_micro_batch_rows.
//
// Sequences that decode come first, spread evenly in the order of their ids: who decodes alone
// says which micro-batch a sequence is in, so that prompts that come and go move nobody. (Stages
// rotate through the micro-batches: a sequence that changed would wait for its last token.)
// Prompts level the micro-batches' rows, and make more of them than decodes do, none finer than
// pays.
std::vector<std::vector<Chunk>> CutMicroBatches(absl::Span<const RowShare> shares,
                                                const SchedulerLimits& limits);

}  // namespace skein::worker
