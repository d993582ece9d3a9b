#include "worker/scheduler/scheduler.h"

#include <algorithm>

namespace skein::worker {
namespace {

// Cutting a prompt finer than this reads the weights once more without filling the pipeline.
constexpr int64_t kMinMicroBatchRows = 16;

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

std::vector<Admission> Admit(const Snapshot& snapshot, const SchedulerLimits& limits) {
  std::vector<Admission> admissions;
  int64_t slots = limits.max_sequences - static_cast<int64_t>(snapshot.running.size());
  int64_t free_pages = snapshot.free_pages;
  for (const SequenceView& sequence : snapshot.waiting) {
    const int64_t pages = CeilDiv(sequence.max_length, limits.page_size);
    // Nobody overtakes: a small request behind a large one waits, so the large one is never
    // starved.
    if (slots <= 0 || pages > free_pages) break;
    --slots;
    free_pages -= pages;
    admissions.push_back({sequence.id, pages});
  }
  return admissions;
}

// Fills micro-batches of at most `target` rows, one after the other.
class MicroBatchFiller {
 public:
  MicroBatchFiller(int64_t micro_batches, int64_t target)
      : micro_batches_(micro_batches), target_(target) {}

  void Add(const SequenceView& sequence) {
    int64_t begin = sequence.computed;
    while (begin < sequence.length) {
      if (room_ == 0 && !Open()) return;
      const int64_t count = std::min(sequence.length - begin, room_);
      batches_.back().push_back({sequence.id, begin, count, begin + count == sequence.length});
      begin += count;
      room_ -= count;
    }
  }

  std::vector<std::vector<Chunk>> Take() { return std::move(batches_); }

 private:
  bool Open() {
    if (static_cast<int64_t>(batches_.size()) == micro_batches_) return false;
    batches_.emplace_back();
    room_ = target_;
    return true;
  }

  int64_t micro_batches_;
  int64_t target_;
  int64_t room_ = 0;
  std::vector<std::vector<Chunk>> batches_;
};

std::vector<std::vector<Chunk>> CutMicroBatches(const std::vector<SequenceView>& running,
                                                const SchedulerLimits& limits) {
  int64_t rows = 0;
  bool prefill = false;
  for (const SequenceView& sequence : running) {
    rows += sequence.length - sequence.computed;
    prefill |= sequence.length - sequence.computed > 1;
  }
  // Decoding is bound by reading weights, but only several micro-batches keep a pipeline busy:
  // the rows are spread evenly. Prompts are cut no finer than pays.
  int64_t target = CeilDiv(rows, limits.micro_batches);
  if (prefill) target = std::max(target, kMinMicroBatchRows);
  target = std::clamp<int64_t>(target, 1, limits.max_micro_batch_rows);

  MicroBatchFiller filler(limits.micro_batches, target);
  for (const bool decode : {true, false}) {
    for (const SequenceView& sequence : running) {
      if ((sequence.length - sequence.computed == 1) == decode) filler.Add(sequence);
    }
  }
  return filler.Take();
}

}  // namespace

StepPlan Schedule(const Snapshot& snapshot, const SchedulerLimits& limits) {
  StepPlan plan;
  plan.admissions = Admit(snapshot, limits);
  std::vector<SequenceView> running(snapshot.running.begin(), snapshot.running.end());
  running.insert(running.end(), snapshot.waiting.begin(),
                 snapshot.waiting.begin() + plan.admissions.size());
  plan.micro_batches = CutMicroBatches(running, limits);
  return plan;
}

}  // namespace skein::worker
