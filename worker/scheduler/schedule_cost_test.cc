#include <algorithm>
#include <chrono>
#include <vector>

#include "gtest/gtest.h"
#include "worker/scheduler/schedule.h"
#include "worker/scheduler/test_views.h"

namespace skein::worker {
namespace {

// What the host may spend on a step, of which this is a part.
TEST(ScheduleCostTest, SixtyFourSequencesTakeUnderFiftyMicroseconds) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  constexpr int kSlowdown = 100;
#else
  constexpr int kSlowdown = 1;
#endif
  std::vector<SequenceView> running, waiting;
  for (SequenceId id = 0; id < 64; ++id) {
    running.push_back(Ranks(Decode(id * 37 % 64, 200 + id), id % 5));
    waiting.push_back(Ranks(Prompt(100 + id * 37 % 64, 300), id % 3));
  }
  const Snapshot snapshot = {
      .now = At(1000), .waiting = waiting, .running = running, .free_pages = 100};
  const SchedulerLimits limits = {.step_tokens = 256,
                                  .stages = 4,
                                  .micro_batches = 4,
                                  .max_micro_batch_rows = 256,
                                  .page_size = kPage};
  // The best of many: others use the machine, too.
  auto best = std::chrono::nanoseconds::max();
  for (int i = 0; i < 300; ++i) {
    const auto start = std::chrono::steady_clock::now();
    const StepPlan plan = Schedule(snapshot, limits);
    best = std::min<std::chrono::nanoseconds>(best, std::chrono::steady_clock::now() - start);
    ASSERT_EQ(plan.micro_batches.size(), 4u);
  }
  RecordProperty("nanoseconds", static_cast<int>(best.count()));
  EXPECT_LT(best, kSlowdown * std::chrono::microseconds(50));
}

}  // namespace
}  // namespace skein::worker
