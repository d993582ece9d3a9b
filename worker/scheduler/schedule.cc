#include "worker/scheduler/schedule.h"

#include <algorithm>
#include <compare>
#include <optional>
#include <queue>
#include <utility>

#include "absl/algorithm/container.h"
#include "parallel/plan/held_pages.h"
#include "serving/queue_order.h"
#include "worker/scheduler/micro_batches.h"

namespace skein::worker {
namespace {

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

// The most rows that a step has.
int64_t StepRows(const SchedulerLimits& limits) {
  return std::min(
      limits.max_num_batched_tokens,
      int64_t{std::max(limits.stages, limits.micro_batches)} * limits.max_micro_batch_rows);
}

// A sequence and its place in the order.
struct Ranked {
  const SequenceView* view = nullptr;
  serving::QueueOrder order;
};

Ranked Rank(const SequenceView& sequence, absl::Time now, absl::Duration aging) {
  return {&sequence,
          serving::OrderAt(now, sequence.priority, sequence.deadline, sequence.arrival, aging)};
}

bool Before(const Ranked& a, const Ranked& b) {
  const std::strong_ordering order = a.order <=> b.order;
  return order == 0 ? a.view->id < b.view->id : order < 0;
}

struct After {
  bool operator()(const Ranked& a, const Ranked& b) const { return Before(b, a); }
};

// Holds the running sequences as a stack, the last in the order on top: only it gives way.
class Planner {
 public:
  Planner(const Snapshot& snapshot, const SchedulerLimits& limits);

  StepPlan Plan() {
    ShareRows();
    FindPages();
    Admit();
    return Finish();
  }

 private:
  struct Running {
    Ranked rank;
    int64_t rows = 0;  // in this step
  };
  // What admissions may take. `spare_pages`: free ones less those promised to the running.
  struct Room {
    int64_t slots = 0;
    int64_t rows = 0;
    int64_t logit_rows = 0;
    int64_t spare_pages = 0;

    int64_t RowsFor(const SequenceView& sequence) const {
      const int64_t left = sequence.all_logits ? std::min(rows, logit_rows) : rows;
      return std::min(sequence.length - sequence.computed, left);
    }
    // Takes them back where `count` is negative.
    void Give(const SequenceView& sequence, int64_t count) {
      rows -= count;
      if (sequence.all_logits) logit_rows -= count;
    }
  };

  void ShareRows();
  void FindPages();
  void Admit();
  StepPlan Finish();

  // New pages for the next `rows` rows of a sequence.
  int64_t NewPages(const SequenceView& sequence, int64_t rows) const;
  // The new pages that it may come to hold at once for all its known tokens, beside `own` ones that
  // it has for itself, and one of growth for each sequence that it becomes.
  int64_t Promised(const SequenceView& sequence, int64_t own) const;
  int64_t Promised(const SequenceView& sequence) const {
    return Promised(sequence, sequence.own_pages);
  }
  Room Without(Room room, const Running& running) const;
  bool Swaps(const SequenceView& sequence) const;
  void PreemptLast();

  // Free pages that a waiting sequence takes before its first row. `freed`: pages that it shares
  // may have become idle by a preemption in this step, so that all of them are taken to be.
  int64_t Brought(const SequenceView& sequence, bool freed) const;
  // Whether it fits beside the first `keep` running sequences, which leave `room`.
  bool Fits(const SequenceView& sequence, const Room& room, size_t keep) const;
  // Preempts what ranks strictly lower where that makes `next` fit. Whether it can be admitted.
  bool MakeRoom(const Ranked& next);
  bool OutranksAPrompt(const Ranked& next) const;
  void Take(const SequenceView& sequence);

  const SchedulerLimits& limits_;
  const PreemptionRates rates_;
  std::vector<Running> running_;  // in order
  std::priority_queue<Ranked, std::vector<Ranked>, After> waiting_;
  Room room_;
  int64_t free_pages_;
  int64_t free_swap_pages_;
  std::optional<Ranked> preempted_;  // the latest: first in the order of all in this step
  std::vector<RowShare> admitted_;
  // Pages that those admitted share with running ones, at no cost until one of these gives way:
  // then not all of its pages come free.
  int64_t borrowed_pages_ = 0;
  StepPlan plan_;
};

Planner::Planner(const Snapshot& snapshot, const SchedulerLimits& limits)
    : limits_(limits),
      rates_(snapshot.rates),
      free_pages_(snapshot.free_pages),
      free_swap_pages_(snapshot.free_swap_pages) {
  running_.reserve(snapshot.running.size());
  for (const SequenceView& sequence : snapshot.running) {
    running_.push_back({Rank(sequence, snapshot.now, limits.aging)});
  }
  const auto before = [](const Running& a, const Running& b) { return Before(a.rank, b.rank); };
  // Those that came earlier stand first, and where nothing else counts they are in order.
  if (!absl::c_is_sorted(running_, before)) absl::c_sort(running_, before);

  std::vector<Ranked> waiting;
  waiting.reserve(snapshot.waiting.size());
  for (const SequenceView& sequence : snapshot.waiting) {
    if (!sequence.pending) waiting.push_back(Rank(sequence, snapshot.now, limits.aging));
  }
  waiting_ = decltype(waiting_)(After(), std::move(waiting));

  room_.slots = snapshot.free_slots;
  room_.rows = StepRows(limits);
  room_.logit_rows = limits.logit_rows;
  room_.spare_pages = free_pages_;
  for (const Running& running : running_) room_.spare_pages -= Promised(*running.rank.view);
}

int64_t Planner::NewPages(const SequenceView& sequence, int64_t rows) const {
  if (rows == 0) return 0;
  const int64_t pages =
      CeilDiv(sequence.computed + rows, limits_.page_size) - sequence.pages - sequence.gone_pages;
  return std::max<int64_t>(pages, 0) + (sequence.copies ? 1 : 0);
}

int64_t Planner::Promised(const SequenceView& sequence, int64_t own) const {
  int64_t pages = NewPages(sequence, sequence.length - sequence.computed);
  if (limits_.window > 0) {
    // Pages of its own come back as it goes on; those that it shares may not.
    const int64_t held =
        plan::MostHeldPages(sequence.length, limits_.window, StepRows(limits_), limits_.page_size);
    pages = std::min(pages, std::max<int64_t>(held - own, 0) + (sequence.copies ? 1 : 0));
  }
  return pages + sequence.slots;
}

void Planner::ShareRows() {
  for (const bool decodes : {true, false}) {
    for (Running& running : running_) {
      const SequenceView& sequence = *running.rank.view;
      if (Decodes(sequence) != decodes) continue;
      running.rows = room_.RowsFor(sequence);
      room_.Give(sequence, running.rows);
    }
  }
}

void Planner::FindPages() {
  for (size_t i = 0; i < running_.size(); ++i) {
    const int64_t pages = NewPages(*running_[i].rank.view, running_[i].rows);
    while (pages > free_pages_ && running_.size() > i + 1) PreemptLast();
    if (pages <= free_pages_) {
      free_pages_ -= pages;
    } else if (i > 0) {
      PreemptLast();
    } else {
      // Giving way would help nobody. Pages that those gone shared with each other are free in the
      // next snapshot.
      room_.Give(*running_[i].rank.view, -std::exchange(running_[i].rows, 0));
    }
  }
}

void Planner::Admit() {
  while (!waiting_.empty()) {
    const Ranked next = waiting_.top();
    waiting_.pop();
    // Nobody overtakes, those that just gave way neither.
    if (preempted_ && Before(*preempted_, next)) return;
    if (!MakeRoom(next)) return;
    Take(*next.view);
  }
}

bool Planner::MakeRoom(const Ranked& next) {
  Room room = room_;
  size_t keep = running_.size();
  while (!Fits(*next.view, room, keep) && keep > 0 &&
         running_[keep - 1].rank.order.effective_priority < next.order.effective_priority) {
    room = Without(room, running_[--keep]);
  }
  if (Fits(*next.view, room, keep)) {
    const bool computes =
        room.RowsFor(*next.view) > 0 || keep < running_.size() || OutranksAPrompt(next);
    while (running_.size() > keep) PreemptLast();
    return computes;
  }
  // Alone it would fit: the last ones share pages, and who gives way leaves them to the others.
  // The next snapshot tells what those are worth then. (One that runs alone shares none: it gives
  // way to the one that takes its place only, since else both might do so by turns.)
  if (keep == 0 && running_.size() > 1 && admitted_.empty()) PreemptLast();
  return false;
}

bool Planner::Fits(const SequenceView& sequence, const Room& room, size_t keep) const {
  const bool freed = preempted_.has_value() || keep < running_.size();
  const int64_t brought = Brought(sequence, freed);
  int64_t pages = brought + Promised(sequence, brought);
  if (freed) pages += borrowed_pages_;
  // Alone it needs no room to grow beside others, and may need every page that there is.
  if (keep == 0 && admitted_.empty()) pages -= sequence.slots;
  return sequence.slots <= room.slots && pages <= room.spare_pages;
}

int64_t Planner::Brought(const SequenceView& sequence, bool freed) const {
  return sequence.swapped || freed ? sequence.pages : sequence.idle_pages;
}

bool Planner::OutranksAPrompt(const Ranked& next) const {
  return std::any_of(running_.begin(), running_.end(), [&](const Running& running) {
    return running.rows > 0 && !Decodes(*running.rank.view) &&
           running.rank.order.effective_priority < next.order.effective_priority;
  });
}

void Planner::Take(const SequenceView& sequence) {
  const int64_t rows = room_.RowsFor(sequence);
  room_.Give(sequence, rows);
  room_.slots -= sequence.slots;
  const int64_t brought = Brought(sequence, preempted_.has_value());
  borrowed_pages_ += sequence.pages - brought;
  room_.spare_pages -= brought + Promised(sequence, brought);
  admitted_.push_back({&sequence, rows});
  plan_.admissions.push_back(sequence.id);
}

Planner::Room Planner::Without(Room room, const Running& running) const {
  const SequenceView& sequence = *running.rank.view;
  room.slots += sequence.slots;
  room.Give(sequence, -running.rows);
  room.spare_pages += sequence.own_pages + Promised(sequence);
  return room;
}

bool Planner::Swaps(const SequenceView& sequence) const {
  return sequence.pages <= free_swap_pages_ && 2.0 * sequence.pages * rates_.prefill_tokens_per_s <
                                                   sequence.computed * rates_.swap_pages_per_s;
}

void Planner::PreemptLast() {
  const Running last = running_.back();
  running_.pop_back();
  const SequenceView& sequence = *last.rank.view;
  room_ = Without(room_, last);
  room_.spare_pages -= std::exchange(borrowed_pages_, 0);
  free_pages_ += sequence.own_pages;
  const bool swap = Swaps(sequence);
  if (swap) free_swap_pages_ -= sequence.pages;
  preempted_ = last.rank;
  plan_.preemptions.push_back({sequence.id, swap});
}

StepPlan Planner::Finish() {
  std::vector<RowShare> shares;
  shares.reserve(running_.size() + admitted_.size());
  for (const Running& running : running_) shares.push_back({running.rank.view, running.rows});
  shares.insert(shares.end(), admitted_.begin(), admitted_.end());
  plan_.micro_batches = CutRowsIntoMicroBatches(shares, limits_);
  return std::move(plan_);
}

}  // namespace

StepPlan Schedule(const Snapshot& snapshot, const SchedulerLimits& limits) {
  return Planner(snapshot, limits).Plan();
}

}  // namespace skein::worker
