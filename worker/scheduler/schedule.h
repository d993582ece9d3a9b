// Decides what a replica computes next. Pure: a snapshot in, a StepPlan out; no I/O, no clock, no
// state of its own, so that tests and the simulator run the very code that serves.
//
// Policy: continuous batching (Yu et al., Orca, 2022) with chunked prefill (Agrawal et al.,
// Sarathi-Serve, 2024). All sequences stand in one order: effective priority, then deadline, then
// arrival; waiting raises the effective priority, so that nobody starves. Every step has a budget
// of tokens: sequences that decode take one each, prompts are cut into what is left. A sequence
// holds pages for what it has computed only; when pages run out, the last one in the order gives
// way.
//
// Any thread may call. Nothing fails: what cannot run waits. Cost: linear in the sequences, plus
// sorting those that run and those that it admits.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/time/time.h"
#include "absl/types/span.h"
#include "base/strong_id.h"
#include "serving/queue_order.h"

namespace skein::worker {

// Given by the replica's leader, in the order in which sequences come.
using SequenceId = StrongId<struct SequenceIdTag>;

// The plan's limits, per replica. All positive.
struct SchedulerLimits {
  int64_t max_num_batched_tokens = 1;  // rows of a step at most
  // The most rows of a step that belong to prompts all of whose logits are wanted, since logits
  // take memory.
  int64_t logit_rows = 1;
  int32_t stages = 1;  // of the pipeline: prompts are cut for all to work; 1: they are not cut
  int32_t micro_batches = 1;  // that decodes are spread over
  int32_t max_micro_batch_rows = 1;
  int64_t page_size = 1;
  // How many positions a row attends to at most, its own included; 0: all before it. Sequences give
  // pages back that none of their later rows sees.
  int64_t window = 0;
  absl::Duration aging = serving::kAging;
};

struct SequenceView {
  SequenceId id;
  int32_t priority = 0;  // higher goes first
  absl::Time arrival;
  absl::Time deadline = absl::InfiniteFuture();
  int32_t slots = 1;  // sequences that it is, or becomes: answers that share the prompt
  // Tokens known, or given by a step in flight: prompt and answer so far.
  int64_t length = 0;
  // The tokens whose keys and values are in its pages, or will be once the steps in flight are
  // over; < length. For a waiting sequence, what the prefix cache holds of it.
  int64_t computed = 0;
  int64_t pages = 0;        // that it holds (waiting: that it would share; swapped: to bring back)
  int64_t gone_pages = 0;   // before those: no row to come sees them
  int64_t own_pages = 0;    // of `pages`, those that nobody else uses: giving way frees them
  int64_t idle_pages = 0;   // waiting: of `pages`, those counted in free_pages
  bool all_logits = false;  // of every row that it is given, not only the last: see logit_rows
  bool copies = false;      // its next write goes to a shared page, which is copied first
  bool swapped = false;     // waiting, its pages are in the swap pool
  bool pending = false;     // waiting for a token in flight: cannot be resumed in this step
};

// The rates by which preemption chooses between swapping and recomputing.
struct PreemptionRates {
  double prefill_tokens_per_s = 1;
  double swap_pages_per_s = 1;  // one way
};

// Borrowed; valid during Schedule.
struct Snapshot {
  absl::Time now;
  absl::Span<const SequenceView> waiting;  // in any order; new and preempted ones
  absl::Span<const SequenceView> running;  // in any order
  int32_t free_slots = 0;
  int64_t free_pages = 0;  // also those that only the prefix cache uses
  int64_t free_swap_pages = 0;
  PreemptionRates rates;
};

// Tokens [begin, begin + count) of a sequence. `draws`: the chunk reaches the sequence's end, so
// its last row gives the next token.
struct Chunk {
  SequenceId id;
  int64_t begin = 0;
  int64_t count = 0;
  bool draws = false;

  friend bool operator==(const Chunk&, const Chunk&) = default;
};

// The sequence gives all its pages back. With `swap` they are copied to the swap pool first;
// otherwise it is computed anew later.
struct Preemption {
  SequenceId id;
  bool swap = false;

  friend bool operator==(const Preemption&, const Preemption&) = default;
};

// One step. It takes effect in this order: preemptions, admissions (the pages that they share
// before those that are brought back, which may evict), then pages for the chunks: each sequence
// holds pages for its computed tokens and its chunks' at the end, and gives back then what is
// behind the window.
struct StepPlan {
  std::vector<Preemption> preemptions;
  // Waiting sequences that are admitted: new, recomputed or swapped back. One that outranks the
  // prompts that took the whole budget is admitted without a chunk, to stand before them in the
  // next step.
  std::vector<SequenceId> admissions;
  // No micro-batch is empty. A sequence's chunks stand in order, each in another micro-batch.
  std::vector<std::vector<Chunk>> micro_batches;
};

// Plans the next step. Progress is certain: unless all waiting sequences are pending, a plan is
// empty only where sequences outside the snapshot hold pages or slots. No sequence may be passed
// that alone comes to hold more than all pages at once.
StepPlan Schedule(const Snapshot& snapshot, const SchedulerLimits& limits);

}  // namespace skein::worker
