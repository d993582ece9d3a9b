#include "parallel/pipeline/pipeline_schedule.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "parallel/pipeline/test_schedules.h"

namespace skein::schedule {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<std::string> Text(const std::vector<Instruction>& list) {
  std::vector<std::string> text;
  for (const Instruction& instruction : list) text.push_back(ToString(instruction));
  return text;
}

// What of a stage's lists has this operation, over all orders.
std::vector<MicroBatchId> All(const Schedule& schedule, int32_t stage, Operation operation) {
  std::vector<MicroBatchId> all;
  for (const Order& order : schedule) {
    for (const Instruction& instruction : order[stage]) {
      if (instruction.operation == operation) all.push_back(instruction.what);
    }
  }
  return all;
}

TEST(StageStep, FirstStageFeedsOnTheTokensOfTheStepBefore) {
  const std::vector<MicroBatch> batches = {{{{6, 0}}, true}, {{{6, 1}, {6, 2}}, true}, {{}, false}};
  EXPECT_THAT(
      Text(StageStep(2, 0, 7, batches)),
      ElementsAre("receive the tokens of step 6, micro-batch 0", "compute step 7, micro-batch 0",
                  "send the activations of step 7, micro-batch 0",
                  "receive the tokens of step 6, micro-batch 1",
                  "receive the tokens of step 6, micro-batch 2", "compute step 7, micro-batch 1",
                  "send the activations of step 7, micro-batch 1", "compute step 7, micro-batch 2",
                  "send the activations of step 7, micro-batch 2",
                  "flush the activations of step 7, micro-batch 2"));
}

TEST(StageStep, MiddleStagePassesOn) {
  const std::vector<MicroBatch> batches = {{{{6, 0}}, true}};
  EXPECT_THAT(
      Text(StageStep(3, 1, 7, batches)),
      ElementsAre("receive the activations of step 7, micro-batch 0",
                  "compute step 7, micro-batch 0", "send the activations of step 7, micro-batch 0",
                  "flush the activations of step 7, micro-batch 0"));
}

TEST(StageStep, LastStageSamplesWhatGivesTokens) {
  const std::vector<MicroBatch> batches = {{{{6, 0}}, true}, {{}, false}};
  EXPECT_THAT(Text(StageStep(3, 2, 7, batches)),
              ElementsAre("receive the activations of step 7, micro-batch 0",
                          "compute step 7, micro-batch 0", "sample step 7, micro-batch 0",
                          "send the tokens of step 7, micro-batch 0",
                          "receive the activations of step 7, micro-batch 1",
                          "compute step 7, micro-batch 1"));
}

TEST(StageStep, OneStageMovesNothing) {
  const std::vector<MicroBatch> batches = {{{{6, 0}}, true}, {{}, false}};
  EXPECT_THAT(Text(StageStep(1, 0, 7, batches)),
              ElementsAre("compute step 7, micro-batch 0", "sample step 7, micro-batch 0",
                          "compute step 7, micro-batch 1"));
}

TEST(StageStep, StepWithoutMicroBatchesIsEmpty) { EXPECT_THAT(StageStep(3, 1, 7, {}), IsEmpty()); }

TEST(Prefill, LastChunkGivesTheToken) {
  EXPECT_THAT(All(Prefill(3, 4), 2, Operation::kSample), ElementsAre(MicroBatchId{0, 3}));
  EXPECT_THAT(All(Prefill(3, 4), 0, Operation::kReceiveTokens), IsEmpty());
}

// What any schedule must keep, seen from the lists alone.
class Lists : public ::testing::TestWithParam<int> {};

TEST_P(Lists, SendsAndReceivesPairUpInOrder) {
  const int32_t stages = GetParam();
  for (int32_t micro_batches = 1; micro_batches <= 17; ++micro_batches) {
    const int32_t steps = 3;
    for (const Schedule& schedule :
         {Prefill(stages, micro_batches), Decode(stages, micro_batches, steps)}) {
      const size_t computed = schedule.size() * micro_batches;
      for (int32_t stage = 0; stage < stages; ++stage) {
        EXPECT_EQ(All(schedule, stage, Operation::kCompute).size(), computed);
        EXPECT_EQ(All(schedule, stage, Operation::kCompute), All(schedule, 0, Operation::kCompute));
        if (stage == 0) continue;
        EXPECT_EQ(All(schedule, stage, Operation::kReceiveActivations),
                  All(schedule, stage - 1, Operation::kSendActivations));
      }
      std::vector<MicroBatchId> tokens = All(schedule, stages - 1, Operation::kSendTokens);
      const std::vector<MicroBatchId> taken = All(schedule, 0, Operation::kReceiveTokens);
      EXPECT_EQ(taken.size(), stages == 1 ? 0 : (schedule.size() - 1) * micro_batches);
      ASSERT_LE(taken.size(), tokens.size());
      tokens.resize(taken.size());  // those of the last step stay
      EXPECT_EQ(taken, tokens);
    }
  }
}

TEST_P(Lists, SendsStandRightBehindWhatMakesTheirData) {
  const int32_t stages = GetParam();
  for (int32_t micro_batches = 1; micro_batches <= 17; ++micro_batches) {
    for (const Order& order : Decode(stages, micro_batches, 2)) {
      for (const std::vector<Instruction>& list : order) {
        for (size_t i = 0; i < list.size(); ++i) {
          const Operation operation = list[i].operation;
          if (operation != Operation::kSendActivations && operation != Operation::kSendTokens) {
            continue;
          }
          ASSERT_GT(i, 0u);
          EXPECT_EQ(list[i - 1].operation,
                    operation == Operation::kSendTokens ? Operation::kSample : Operation::kCompute);
          EXPECT_EQ(list[i - 1].what, list[i].what);
        }
      }
    }
  }
}

TEST_P(Lists, StepsEndWithOneFlushWhereActivationsAreSent) {
  const int32_t stages = GetParam();
  for (const Order& order : Decode(stages, 5, 2)) {
    for (int32_t stage = 0; stage < stages; ++stage) {
      const std::vector<MicroBatchId> flushed = All({order}, stage, Operation::kFlush);
      const std::vector<MicroBatchId> sent = All({order}, stage, Operation::kSendActivations);
      ASSERT_EQ(flushed.size(), stage < stages - 1 ? 1u : 0u);
      if (flushed.empty()) continue;
      EXPECT_EQ(order[stage].back(), (Instruction{Operation::kFlush, sent.back()}));
    }
  }
}

TEST_P(Lists, DecodeTakesInItsTokensRightBeforeItNeedsThem) {
  const int32_t stages = GetParam();
  const Schedule schedule = Decode(stages, 5, 4);
  for (int64_t step = 1; stages > 1 && step < 4; ++step) {
    const std::vector<Instruction>& list = schedule[step][0];
    for (int32_t i = 0; i < 5; ++i) {
      EXPECT_EQ(list[3 * i], (Instruction{Operation::kReceiveTokens, {step - 1, i}}));
      EXPECT_EQ(list[3 * i + 1], (Instruction{Operation::kCompute, {step, i}}));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Stages, Lists, ::testing::Range(1, 9));

}  // namespace
}  // namespace skein::schedule
