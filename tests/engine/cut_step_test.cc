// What steps take is predicted by the rows of their micro-batches, which the scheduler cuts.
#include <cstdint>
#include <random>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "parallel/cost/stage_cost.h"
#include "parallel/cost/step_cost.h"
#include "parallel/plan/prompt_pieces.h"
#include "worker/scheduler/schedule.h"

namespace skein::worker {
namespace {

SequenceView Running(int64_t id, int64_t length, int64_t computed) {
  SequenceView view;
  view.id = SequenceId(id);
  view.arrival = absl::UnixEpoch() + absl::Seconds(id);
  view.length = length;
  view.computed = computed;
  view.pages = view.own_pages = (computed + 15) / 16;
  return view;
}

TEST(CutStepTest, PredictionsCutStepsAsTheSchedulerDoes) {
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
    for (int i = 0; i < decodes; ++i) running.push_back(Running(i + 1, 5, /*computed=*/4));
    for (int i = pick(1, 4); i > 0; --i) running.push_back(Running(100 + i, pick(2, 300), 0));
    const StepPlan cut_step =
        Schedule({.now = absl::UnixEpoch(), .running = running, .free_pages = 1000},
                 {.max_num_batched_tokens = 1000,
                  .stages = stages,
                  .micro_batches = micro_batches,
                  .max_micro_batch_rows = most,
                  .page_size = 16});
    std::vector<std::pair<int64_t, int64_t>> rows;  // decodes and prompts'
    cost::Batch step = {.decodes = decodes};
    for (const std::vector<Chunk>& batch : cut_step.micro_batches) {
      auto& of_batch = rows.emplace_back();
      for (const Chunk& chunk : batch) {
        (chunk.id.value() < 100 ? of_batch.first : of_batch.second) += chunk.count;
      }
      step.prompt_rows += of_batch.second;
    }
    cost::Replica replica;
    replica.stages.resize(stages);
    replica.micro_batches = micro_batches;
    replica.prompt_pieces = plan::PromptPieces(stages);
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

}  // namespace
}  // namespace skein::worker
