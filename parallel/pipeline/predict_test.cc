#include "parallel/pipeline/predict.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/test_util.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace skein::schedule {
namespace {

using ::testing::HasSubstr;

constexpr absl::Duration kMs = absl::Milliseconds(1);
// One byte a microsecond: the tests' bytes are microseconds.
constexpr double kByteAMicrosecond = 1e6;

TEST(ComputeTime, IsTheSlowerOfReadingAndComputing) {
  const StageWork work = {.weight_bytes = 1000, .row_bytes = 10, .row_operations = 400};
  const Rates rates = {.bytes_per_s = kByteAMicrosecond, .operations_per_s = 4e6};
  EXPECT_EQ(ComputeTime(work, rates, 1), absl::Microseconds(1010));
  EXPECT_EQ(ComputeTime(work, rates, 20), absl::Microseconds(2000));
}

TEST(PredictDecode, SpreadsTheRowsEvenly) {
  const std::vector<StageWork> stages = {{.weight_bytes = 1000, .row_bytes = 100}};
  SKEIN_ASSERT_OK_AND_ASSIGN(const Timeline timeline,
                             PredictDecode(stages, {.bytes_per_s = kByteAMicrosecond}, 5, 3, 1));
  ASSERT_EQ(timeline.intervals.size(), 3u);
  EXPECT_EQ(timeline.intervals[0].end, absl::Microseconds(1200));
  EXPECT_EQ(timeline.intervals[1].end, absl::Microseconds(2400));
  EXPECT_EQ(timeline.intervals[2].end, absl::Microseconds(3500));
}

// The closed form for equal stages and micro-batches of equal size:
// a step takes max(M c + h, P (c + h)), c = weights + rows / M. With M = P the ring decides; with
// M = P + 1 a step is P w + w + rows + h against P w + rows + P h, so that it is shorter where
// w < (P - 1) h, as long as its own ring is shorter, too, which rows alone make it.
double StepMicroseconds(int32_t stages, int32_t micro_batches, double weights, double rows,
                        double hop) {
  const double compute = weights + rows / micro_batches;
  if (stages == 1) return micro_batches * compute;
  return std::max(micro_batches * compute + hop, stages * (compute + hop));
}

TEST(ChooseMicroBatches, AgreesWithTheClosedForm) {
  int more = 0;
  for (int32_t stages = 1; stages <= 8; ++stages) {
    const int64_t sequences = stages * (stages + 1);  // P and P + 1 divide it
    for (const int64_t row_bytes : {0, 100, 1000}) {
      for (const int64_t hop : {0, 150, 700, 3000}) {
        const std::vector<StageWork> work(stages, {.weight_bytes = 1000, .row_bytes = row_bytes});
        Rates rates = {.bytes_per_s = kByteAMicrosecond};
        rates.hop = absl::Microseconds(hop);
        SKEIN_ASSERT_OK_AND_ASSIGN(const MicroBatchChoice choice,
                                   ChooseMicroBatches(work, rates, sequences));
        const double rows = static_cast<double>(row_bytes * sequences);
        const double tight = StepMicroseconds(stages, stages, 1000, rows, hop);
        const double loose = StepMicroseconds(stages, stages + 1, 1000, rows, hop);
        EXPECT_EQ(choice.micro_batches, stages > 1 && loose < tight ? stages + 1 : stages)
            << "rows of " << row_bytes << ", hop " << hop;
        more += choice.micro_batches > stages;
        if (stages > 1) {  // the header's rule
          EXPECT_EQ(loose < tight, row_bytes > 0 && 1000 < (stages - 1) * hop);
        }
        ASSERT_EQ(choice.predictions.size(), stages == 1 ? 1u : 2u);
        EXPECT_NEAR(absl::ToDoubleMicroseconds(choice.predictions[0].steady.step_period), tight,
                    0.01);
      }
    }
  }
  EXPECT_GT(more, 10);  // both happen
}

TEST(ChooseMicroBatches, HasNoEmptyOnes) {
  const std::vector<StageWork> work(4, {.weight_bytes = 1, .row_bytes = 1000});
  Rates rates = {.bytes_per_s = kByteAMicrosecond};
  rates.hop = kMs;
  for (const int64_t sequences : {1, 2, 3, 4}) {
    SKEIN_ASSERT_OK_AND_ASSIGN(const MicroBatchChoice choice,
                               ChooseMicroBatches(work, rates, sequences));
    EXPECT_EQ(choice.micro_batches, sequences);
  }
}

TEST(ChooseMicroBatches, RefusesWhatMakesNoSense) {
  const std::vector<StageWork> work(2);
  const Rates rates = {.bytes_per_s = kByteAMicrosecond};
  EXPECT_THAT(ChooseMicroBatches({}, rates, 1),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("at least 1 stage")));
  EXPECT_THAT(ChooseMicroBatches(work, {.bytes_per_s = std::nan("")}, 1),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("more than 0")));
  EXPECT_THAT(ChooseMicroBatches(work, rates, 0),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("0 rows")));
  EXPECT_THAT(PredictDecode(work, rates, 2, 3, 1),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("some would be empty")));
}

TEST(WorkOfPlan, TakesTheHeaviestShardOfTheFirstReplica) {
  plan::Plan plan;
  plan.layout = {.tp_size = 2, .pp_size = 2, .dp_size = 2};
  plan.pages = 10;
  plan.page_size = 16;
  for (int32_t rank = 0; rank < 8; ++rank) {
    plan.ranks.push_back({.rank = rank,
                          .dp_rank = rank / 4,
                          .pp_rank = rank / 2 % 2,
                          .tp_rank = rank % 2,
                          .weight_bytes = 1000 + rank,
                          .kv_bytes = 1600 * (1 + rank)});
  }
  const std::vector<StageWork> work = WorkOfPlan(plan, /*context=*/5, /*bytes_per_weight=*/2);
  ASSERT_EQ(work.size(), 2u);
  EXPECT_EQ(work[0].weight_bytes, 1001);
  EXPECT_EQ(work[0].row_bytes, 20 * 5);
  EXPECT_EQ(work[0].row_operations, 1001);
  EXPECT_EQ(work[1].weight_bytes, 1003);
  EXPECT_EQ(work[1].row_bytes, 40 * 5);
}

}  // namespace
}  // namespace skein::schedule
