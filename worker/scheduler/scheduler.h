// Decides what a replica computes next. Pure: a snapshot in, a StepPlan out; no I/O, no clock, no
// state of its own, so that tests and the simulator run the very code that serves.
//
// Policy: first come, first served, with fixed slots. A sequence is admitted when a slot and the
// pages for its longest possible answer are free, and then never preempted. Sequences that decode
// go first, one token each; prompts fill what is left of the micro-batches, in order of admission,
// and are cut into chunks where they do not fit.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"

namespace skein::worker {

using SequenceId = uint64_t;

// The plan's limits, per replica.
struct SchedulerLimits {
  int32_t max_sequences = 1;
  int32_t micro_batches = 1;  // a step has at most this many
  int32_t max_micro_batch_rows = 1;
  int64_t page_size = 1;
};

struct SequenceView {
  SequenceId id = 0;
  int64_t length = 0;      // tokens known: prompt and what was sampled
  int64_t computed = 0;    // of them, those whose keys and values are in the cache; < length
  int64_t max_length = 0;  // prompt and answer at most; its pages are reserved
};

// Borrowed; valid during Schedule.
struct Snapshot {
  absl::Span<const SequenceView> waiting;  // in order of arrival; computed is 0
  absl::Span<const SequenceView> running;  // in order of admission
  int64_t free_pages = 0;
};

// Tokens [begin, begin + count) of a sequence. `sample`: the chunk reaches the sequence's end, so
// its last row gives the next token.
struct Chunk {
  SequenceId id = 0;
  int64_t begin = 0;
  int64_t count = 0;
  bool sample = false;

  friend bool operator==(const Chunk&, const Chunk&) = default;
};

struct Admission {
  SequenceId id = 0;
  int64_t pages = 0;

  friend bool operator==(const Admission&, const Admission&) = default;
};

// One step. A sequence's chunks stand in order, each in another micro-batch.
struct StepPlan {
  std::vector<Admission> admissions;              // a prefix of `waiting`
  std::vector<std::vector<Chunk>> micro_batches;  // none of them empty
};

StepPlan Schedule(const Snapshot& snapshot, const SchedulerLimits& limits);

}  // namespace skein::worker
