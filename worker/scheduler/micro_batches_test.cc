#include <cstdint>
#include <random>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "parallel/cost/stage_cost.h"
#include "parallel/cost/step_cost.h"
#include "parallel/pipeline/prompt_pieces.h"
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

// What steps take is predicted by the rows of their micro-batches.
TEST(MicroBatchTest, PredictionsCutStepsAsTheyAreCut) {
  std::mt19937 random(1);
  const auto pick = [&](int from, int to) {
    return std::uniform_int_distribution<int>(from, to)(random);
  };
  int64_t cut = 0;
  for (int round = 0; round < 2000; ++round) {
    const int32_t stages = pick(1, 6);
    const int32_t micro_batches = stages == 1 ? 1 : pick(stages, 4 * stages);
    const int32_t most = pick(8, 80);
    std::vector<SequenceView> running;
    const int decodes = pick(0, most);
    for (int i = 0; i < decodes; ++i) running.push_back(Decode(i + 1, 5));
    for (int i = pick(1, 4); i > 0; --i) running.push_back(Prompt(100 + i, pick(2, 300)));
    const StepPlan plan = Cut(running, stages, micro_batches, most);
    std::vector<std::pair<int64_t, int64_t>> rows;  // decodes and prompts'
    cost::Batch step = {.decodes = decodes};
    for (const std::vector<Chunk>& batch : plan.micro_batches) {
      auto& of_batch = rows.emplace_back();
      for (const Chunk& chunk : batch) {
        (chunk.id.value() < 100 ? of_batch.first : of_batch.second) += chunk.count;
      }
      step.prompt_rows += of_batch.second;
    }
    cost::Replica replica;
    replica.stages.resize(stages);
    replica.micro_batches = micro_batches;
    replica.prompt_pieces = schedule::PromptPieces(stages);
    replica.max_micro_batch_rows = most;
    std::vector<std::pair<int64_t, int64_t>> predicted;
    for (const cost::Batch& batch : cost::CutStep(replica, step)) {
      predicted.emplace_back(batch.decodes, batch.prompt_rows);
    }
    ASSERT_EQ(predicted, rows) << stages << " " << micro_batches << " " << most;
    cut += rows.size() > 1 ? 1 : 0;
  }
  EXPECT_GT(cut, 1000);
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
