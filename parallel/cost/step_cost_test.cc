#include "parallel/cost/step_cost.h"

#include "base/test_util.h"
#include "gtest/gtest.h"
#include "model/config/test_models.h"
#include "parallel/cost/replica_cost.h"
#include "parallel/cost/replicas_for_tests.h"
#include "topology/presets/presets.h"

namespace skein::cost {
namespace {

using model::Llama8B;
using topology::MakePreset;

// `pp` stages of one H100 each, of which steps are cut as the scheduler cuts them.
Replica Pipeline(int32_t pp, int32_t sequences) {
  Replica replica = Even(/*tp=*/1, pp, sequences);
  replica.prompt_pieces = pp == 1 ? 1 : 2 * pp;
  return replica;
}

double Milliseconds(const Replica& replica, const Batch& rows, Before before = Before::kNothing) {
  const absl::StatusOr<absl::Duration> time =
      StepTime(*MakePreset("dgx-h100"), Llama8B(), replica, rows, before);
  SKEIN_EXPECT_OK(time.status());
  return absl::ToDoubleMilliseconds(time.value_or(absl::ZeroDuration()));
}

Batch Prompt(int64_t rows) {
  return {.prompt_rows = rows, .prompts = 1, .prompt_context = rows / 2, .outputs = 1};
}

TEST(StepTimeTest, APromptAloneTakesWhatPromptsTake) {
  for (const int32_t pp : {1, 2, 4}) {
    SKEIN_ASSERT_OK_AND_ASSIGN(
        const ReplicaCost cost,
        PredictReplica(*MakePreset("dgx-h100"), Llama8B(), Pipeline(pp, 1), {1024, 1, 1}));
    const double expected = absl::ToDoubleMilliseconds(cost.prompt);
    EXPECT_NEAR(Milliseconds(Pipeline(pp, 1), Prompt(1024)), expected, 0.02 * expected) << pp;
  }
}

// Weights are multiplied with by all rows together, 13.96 GB of layers at 989 TFLOP/s; 1.05 GB of
// the output are read for the 9 rows that draw; contexts are read behind.
TEST(StepTimeTest, DecodesAndPromptsShareTheirProducts) {
  Batch rows = Prompt(512);
  rows.decodes = 8;
  rows.context = 4000;
  rows.outputs = 9;
  const double products_ms = 520 * 13.96e9 / 989e12 * 1e3 + 1.05e9 / 3350e9 * 1e3;
  const double contexts_ms = 8 * 4000 * 131072.0 / 3350e9 * 1e3;
  const double expected = products_ms + contexts_ms + 0.05;
  EXPECT_NEAR(Milliseconds(Pipeline(1, 9), rows), expected, 0.03 * expected);
}

TEST(StepTimeTest, RowsWithLogitsCost) {
  Batch all = Prompt(512);
  all.outputs = 512;
  EXPECT_NEAR(Milliseconds(Pipeline(1, 1), all) - Milliseconds(Pipeline(1, 1), Prompt(512)),
              512 * 1.05e9 / 989e12 * 1e3 - 1.05e9 / 3350e9 * 1e3, 0.02);
}

// Four pieces in two stages take five times as long as one of them takes a stage; four times behind
// others; and behind decodes the pipeline has run empty, but for what the decodes took meanwhile.
TEST(StepTimeTest, WhatWasBeforeAPipelinesStepCounts) {
  Batch rows = Prompt(2048);
  rows.decodes = 2;
  rows.context = 100;
  rows.outputs = 3;
  const Replica replica = Pipeline(2, 3);
  const double alone = Milliseconds(replica, rows, Before::kNothing);
  EXPECT_NEAR(Milliseconds(replica, rows, Before::kAlike) / alone, 4.0 / 5, 0.02);
  const double decodes = Milliseconds(replica, {.decodes = 1, .context = 100, .outputs = 1}) / 2;
  EXPECT_NEAR(Milliseconds(replica, rows, Before::kDecodes), alone - decodes, 0.03 * alone);
}

TEST(StepTimeTest, MicroBatchesAreNoLargerThanTheMost) {
  Replica replica = Pipeline(1, 4);
  Batch rows = Prompt(4096);
  rows.prompt_context = 1024;
  const double whole = Milliseconds(replica, rows);
  rows.prompt_rows = 2048;
  EXPECT_NEAR(whole / Milliseconds(replica, rows), 2, 0.02);
  // 2,048 decodes fill one, and the prompts get another.
  const Batch many = {.decodes = 2048, .context = 1, .outputs = 2048};
  Batch both = many;
  both.prompt_rows = 2048;
  both.prompts = 1;
  both.prompt_context = 1024;
  const double expected = Milliseconds(replica, many) + Milliseconds(replica, rows);
  EXPECT_NEAR(Milliseconds(replica, both), expected, 0.02 * expected);
}

// A prompt of which two micro-batches have a part is read by both.
TEST(StepTimeTest, PiecesReadTheirContextAgain) {
  Replica replica = Pipeline(1, 1);
  const Batch rows = {.prompt_rows = 64, .prompts = 1, .prompt_context = 100'000};
  const double once = Milliseconds(replica, rows);
  replica.max_micro_batch_rows = 32;
  // With the weights, 13.96 GB.
  EXPECT_NEAR(Milliseconds(replica, rows) - once, (13.96e9 + 1e5 * 131072) / 3350e9 * 1e3 + 0.05,
              0.1);
}

}  // namespace
}  // namespace skein::cost
