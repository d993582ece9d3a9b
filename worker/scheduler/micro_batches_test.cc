#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/scheduler/schedule.h"
#include "worker/scheduler/test_views.h"

namespace skein::worker {
namespace {

using ::testing::ElementsAre;

StepPlan Cut(const std::vector<SequenceView>& running, int32_t stages, int32_t micro_batches,
             int32_t max_micro_batch_rows) {
  return Schedule({.now = absl::UnixEpoch(), .running = running, .free_pages = 1000},
                  {.max_num_batched_tokens = 1000,
                   .stages = stages,
                   .micro_batches = micro_batches,
                   .max_micro_batch_rows = max_micro_batch_rows,
                   .page_size = kPage});
}

TEST(MicroBatchTest, DecodesSpreadEvenly) {
  EXPECT_THAT(Cut({Decode(1, 9), Decode(2, 5), Decode(3, 7), Decode(4, 2), Decode(5, 8)}, 4, 4, 64)
                  .micro_batches,
              ElementsAre(ElementsAre(Part(1, 8, 1, true), Part(2, 4, 1, true)),
                          ElementsAre(Part(3, 6, 1, true)), ElementsAre(Part(4, 1, 1, true)),
                          ElementsAre(Part(5, 7, 1, true))));
}

TEST(MicroBatchTest, ALongPromptFillsThePipelineInOrder) {
  EXPECT_THAT(Cut({Prompt(1, 100)}, 3, 3, 64).micro_batches,
              ElementsAre(ElementsAre(Part(1, 0, 17, false)), ElementsAre(Part(1, 17, 17, false)),
                          ElementsAre(Part(1, 34, 17, false)), ElementsAre(Part(1, 51, 17, false)),
                          ElementsAre(Part(1, 68, 17, false)), ElementsAre(Part(1, 85, 15, true))));
}

TEST(MicroBatchTest, OneStageCutsNothing) {
  EXPECT_THAT(Cut({Decode(1, 5), Prompt(2, 200)}, 1, 1, 256).micro_batches,
              ElementsAre(ElementsAre(Part(1, 4, 1, true), Part(2, 0, 200, true))));
}

TEST(MicroBatchTest, PromptsLevelTheRows) {
  EXPECT_THAT(
      Cut({Decode(1, 5), Decode(2, 5), Decode(3, 5), Prompt(4, 60), Prompt(5, 17)}, 2, 2, 64)
          .micro_batches,
      ElementsAre(ElementsAre(Part(1, 4, 1, true), Part(2, 4, 1, true), Part(4, 0, 18, false)),
                  ElementsAre(Part(3, 4, 1, true), Part(4, 18, 19, false)),
                  ElementsAre(Part(4, 37, 20, false)),
                  ElementsAre(Part(4, 57, 3, true), Part(5, 0, 17, true))));
}

TEST(MicroBatchTest, AShortPromptIsNotCut) {
  EXPECT_THAT(Cut({Prompt(1, 10)}, 4, 4, 64).micro_batches,
              ElementsAre(ElementsAre(Part(1, 0, 10, true))));
  EXPECT_THAT(Cut({Decode(1, 5), Prompt(2, 16)}, 4, 4, 64).micro_batches,
              ElementsAre(ElementsAre(Part(1, 4, 1, true), Part(2, 0, 16, true))));
}

TEST(MicroBatchTest, StagesCutPromptsWhateverDecodesAreSpreadOver) {
  EXPECT_THAT(Cut({Prompt(1, 64)}, 2, 1, 64).micro_batches,
              ElementsAre(ElementsAre(Part(1, 0, 16, false)), ElementsAre(Part(1, 16, 16, false)),
                          ElementsAre(Part(1, 32, 16, false)), ElementsAre(Part(1, 48, 16, true))));
  EXPECT_THAT(
      Cut({Decode(1, 5), Decode(2, 5), Decode(3, 5), Prompt(4, 40)}, 2, 3, 64).micro_batches,
      ElementsAre(ElementsAre(Part(1, 4, 1, true), Part(4, 0, 16, false)),
                  ElementsAre(Part(2, 4, 1, true), Part(4, 16, 16, false)),
                  ElementsAre(Part(3, 4, 1, true), Part(4, 32, 8, true))));
}

TEST(MicroBatchTest, DecodesTakeMoreWhereTheirRowsAskForIt) {
  EXPECT_THAT(Cut({Decode(1, 5), Decode(2, 5), Decode(3, 5)}, 2, 1, 2).micro_batches,
              ElementsAre(ElementsAre(Part(1, 4, 1, true), Part(2, 4, 1, true)),
                          ElementsAre(Part(3, 4, 1, true))));
}

TEST(MicroBatchTest, TheirRowsBoundAStep) {
  EXPECT_THAT(Cut({Decode(1, 5), Prompt(2, 50)}, 2, 2, 8).micro_batches,
              ElementsAre(ElementsAre(Part(1, 4, 1, true), Part(2, 0, 7, false)),
                          ElementsAre(Part(2, 7, 8, false))));
}

TEST(MicroBatchTest, PromptsAndPrioritiesMoveNoDecode) {
  const auto where = [](const StepPlan& plan, SequenceId id) {
    for (size_t i = 0; i < plan.micro_batches.size(); ++i) {
      for (const Chunk& chunk : plan.micro_batches[i]) {
        if (chunk.id == id) return static_cast<int>(i);
      }
    }
    return -1;
  };
  std::vector<SequenceView> running;
  for (int64_t id = 1; id <= 7; ++id) running.push_back(Decode(id, 5));
  const StepPlan before = Cut(running, 4, 4, 64);
  for (SequenceView& view : running) ++view.length, ++view.computed;
  running[5].deadline = absl::UnixEpoch();
  running.push_back(Prompt(8, 150));
  running.back().priority = 3;
  const StepPlan after = Cut(running, 4, 4, 64);
  for (uint64_t id = 1; id <= 7; ++id) {
    EXPECT_EQ(where(before, SequenceId(id)), where(after, SequenceId(id))) << id;
  }
}

}  // namespace
}  // namespace skein::worker
