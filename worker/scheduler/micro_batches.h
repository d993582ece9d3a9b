// Decides which rows of a step are computed together.
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

// Puts each row of a step into a micro-batch. `shares` are in the scheduler's order. None of
// the micro-batches has more than max_micro_batch_rows.
//
// Sequences that decode come first, spread evenly in the order of their ids. Which micro-batch a
// sequence is in depends only on which sequences decode, so that prompts that come and go move no
// sequence. (Stages rotate through the micro-batches: one that moved would wait for its last
// token.) Prompts then level the micro-batches' rows. They may add micro-batches, none finer than
// pays.
std::vector<std::vector<Chunk>> CutRowsIntoMicroBatches(absl::Span<const RowShare> shares,
                                                        const SchedulerLimits& limits);

}  // namespace skein::worker
