#include <time.h>

#include <vector>

#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "worker/scheduler/schedule.h"
#include "worker/scheduler/test_views.h"

namespace skein::worker {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr int kSlowdown = 100;
#else
constexpr int kSlowdown = 1;
#endif

// Of this thread: what others do on the machine is not counted.
absl::Duration CpuTime() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return absl::DurationFromTimespec(time);
}

// Of one call, on the average of all of them, with as many running sequences and as many waiting.
absl::Duration CostOf(int sequences, int calls) {
  std::vector<SequenceView> running, waiting;
  for (int i = 0; i < sequences; ++i) {
    // In no order: 37 has no common divisor with a power of two.
    const int64_t id = i * 37 % sequences;
    running.push_back(Ranks(Decode(id, 200 + i), i % 5));
    waiting.push_back(Ranks(Prompt(sequences + id, 300), i % 3));
  }
  const Snapshot snapshot = {
      .now = At(100000), .waiting = waiting, .running = running, .free_pages = 2 * sequences};
  const SchedulerLimits limits = {.max_num_batched_tokens = 4 * sequences,
                                  .stages = 4,
                                  .micro_batches = 4,
                                  .max_micro_batch_rows = 4 * sequences,
                                  .page_size = kPage};
  const StepPlan plan = Schedule(snapshot, limits);
  EXPECT_GT(plan.admissions.size(), 0u);
  EXPECT_GE(plan.micro_batches.size(), 4u);
  const absl::Duration begin = CpuTime();
  for (int i = 0; i < calls; ++i) Schedule(snapshot, limits);
  return (CpuTime() - begin) / calls;
}

// What the host may spend on a step, of which this is a part.
TEST(ScheduleCostTest, SixtyFourSequencesTakeUnderFiftyMicroseconds) {
  const absl::Duration cost = CostOf(64, 1000);
  RecordProperty("nanoseconds", static_cast<int>(absl::ToInt64Nanoseconds(cost)));
  EXPECT_LT(cost, kSlowdown * absl::Microseconds(50));
}

// 64 times as many take 64 times as long; sorting twice that, as their logarithm is twice as large.
// As much again is for caches. What compares each with every other would take 64 times more.
TEST(ScheduleCostTest, GrowsWithTheSequencesAndTheirLogarithmOnly) {
  const absl::Duration few = CostOf(64, 1000), many = CostOf(64 * 64, 50);
  RecordProperty("growth", static_cast<int>(absl::FDivDuration(many, few)));
  EXPECT_LT(absl::FDivDuration(many, few), 64 * 2 * 2);
}

}  // namespace
}  // namespace skein::worker
