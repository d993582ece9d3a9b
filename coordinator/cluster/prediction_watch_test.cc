#include "coordinator/cluster/prediction_watch.h"

#include <limits>
#include <optional>
#include <vector>

#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "serving/output.h"

namespace skein::coordinator {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

StepPredictor Always(absl::Duration time) {
  return [time](const plan::StepMeans&) { return time; };
}

// As a cluster asks it.
std::vector<PredictionWatch::Remark> Look(PredictionWatch& watch, const StepPredictor& predictor) {
  std::vector<PredictionWatch::Remark> remarks;
  for (const ReportedSteps& steps : watch.GiveSeconds()) {
    const std::optional<StepComparison> newest = Compare(steps, predictor);
    if (!newest.has_value()) continue;
    if (const auto remark = watch.Add(steps.kind, *newest)) remarks.push_back(*remark);
  }
  return remarks;
}
std::vector<PredictionWatch::Remark> Look(
    PredictionWatch& watch, const serving::ReplicaLoad& load,
    const StepPredictor& predictor = Always(absl::Milliseconds(1))) {
  watch.TakeUp(load);
  return Look(watch, predictor);
}

// A replica; 10 ms are predicted for every step, and 1 ms more for each row of a prompt.
class Computing {
 public:
  // Steps for a second, as its leader counts them.
  void Second(absl::Duration each, int64_t rows = 4, int64_t context = 100) {
    const int64_t steps = absl::Seconds(1) / each;
    load_.steps += steps;
    load_.decode_steps += steps;
    load_.decode_rows += steps * rows;
    load_.decode_context += steps * rows * context;
    load_.decode_time += absl::Seconds(1);
    Report();
    Compare();
  }
  void Seconds(int seconds, absl::Duration each) {
    for (int i = 0; i < seconds; ++i) Second(each);
  }
  // A step with rows of a prompt beside a decode.
  void Prompt(absl::Duration time, int64_t rows) {
    load_.steps += 1;
    load_.prompt_steps.steps += 1;
    load_.prompt_steps.behind_decodes += 1;
    load_.prompt_steps.prompts += 1;
    load_.prompt_steps.rows += rows;
    load_.prompt_steps.context += rows * (rows - 1) / 2;
    load_.prompt_steps.outputs += 1;
    load_.prompt_steps.decodes += 1;
    load_.prompt_steps.decode_context += 70;
    load_.prompt_steps.time += time;
    Report();
  }
  void Compare() {
    for (const PredictionWatch::Remark& remark : Look(watch, predictor)) remarks.push_back(remark);
  }
  Computing() { watch.TakeUp({.steps = 1}); }  // its first report

  int warnings() const {
    int count = 0;
    for (const PredictionWatch::Remark& remark : remarks) count += remark.warns ? 1 : 0;
    return count;
  }

  std::vector<plan::StepMeans> asked;
  StepPredictor predictor = [this](const plan::StepMeans& means) {
    asked.push_back(means);
    return absl::Milliseconds(10 + means.prompt_rows);
  };
  PredictionWatch watch{/*tolerance=*/0.2};
  std::vector<PredictionWatch::Remark> remarks;

 private:
  void Report() { watch.TakeUp(load_); }

  serving::ReplicaLoad load_;
};

TEST(PredictionWatchTest, TheFirstSecondIsToldOnce) {
  Computing replica;
  EXPECT_THAT(Look(replica.watch,
                   {.steps = 99,
                    .decode_steps = 99,
                    .decode_rows = 4 * 99,
                    .decode_context = 400 * 99,
                    .decode_time = absl::Milliseconds(999)},
                   replica.predictor),
              IsEmpty());
  EXPECT_FALSE(replica.watch.Decodes().has_value());
  replica.Second(absl::Milliseconds(8));
  ASSERT_EQ(replica.remarks.size(), 1U);
  EXPECT_FALSE(replica.remarks[0].warns);
  ASSERT_EQ(replica.asked.size(), 1U);
  EXPECT_EQ(replica.asked[0].decodes, 4);
  EXPECT_EQ(replica.asked[0].context, 100);
  EXPECT_EQ(replica.asked[0].prompt_rows, 0);
  EXPECT_EQ(FormatComparison(replica.remarks[0].comparison),
            "8 ms for a step of 4.0 sequences at 100 tokens; predicted were 10 ms (-20%)");
  replica.Seconds(200, absl::Milliseconds(8));
  EXPECT_EQ(replica.remarks.size(), 1U);
}

// What is shown is of the last minute of steps, each step as long as it took.
TEST(PredictionWatchTest, AMeanIsOverStepsOfTheLastMinute) {
  Computing replica;
  replica.Seconds(100, absl::Milliseconds(50));
  for (int i = 0; i < 30; ++i) replica.Second(absl::Milliseconds(20), 2, 300);
  for (int i = 0; i < 30; ++i) replica.Second(absl::Milliseconds(5), 6, 100);
  const std::optional<StepComparison> recent = replica.watch.Decodes();
  ASSERT_TRUE(recent.has_value());
  EXPECT_EQ(recent->steps, 30 * 50 + 30 * 200);
  EXPECT_NEAR(recent->decodes, (2 * 50 + 6 * 200) / 250.0, 1e-9);
  EXPECT_NEAR(recent->context, (300 * 2 * 50 + 100 * 6 * 200) / 1300.0, 1e-9);
  EXPECT_NEAR(absl::ToDoubleMilliseconds(recent->measured), 8, 1e-6);
  EXPECT_NEAR(recent->excess(), -0.2, 1e-9);
}

TEST(PredictionWatchTest, AMinuteFarFromItsPredictionIsAWarningOnce) {
  for (const absl::Duration far : {absl::Milliseconds(12.5), absl::Milliseconds(7)}) {
    Computing replica;
    replica.Seconds(53, far);
    EXPECT_EQ(replica.warnings(), 0);
    replica.Seconds(1, far);
    EXPECT_EQ(replica.warnings(), 1);
    replica.Seconds(300, far);
    EXPECT_EQ(replica.warnings(), 1);
    // It was well meanwhile.
    replica.Seconds(40, absl::Milliseconds(10));
    replica.Seconds(60, far);
    EXPECT_EQ(replica.warnings(), 2);
  }
}

// Nothing explains both, and their mean is near the prediction.
TEST(PredictionWatchTest, StepsThatAreTooLongAndTooShortByTurnsAreNoWarning) {
  Computing replica;
  for (int i = 0; i < 100; ++i) {
    replica.Seconds(1, absl::Milliseconds(14));
    replica.Seconds(1, absl::Milliseconds(6));
  }
  EXPECT_EQ(replica.warnings(), 0);
}

TEST(PredictionWatchTest, LongStepsHaveNoExponents) {
  EXPECT_EQ(FormatComparison({.steps = 1,
                              .decodes = 4,
                              .context = 100,
                              .measured = absl::Milliseconds(2560),
                              .predicted = absl::Milliseconds(2048)}),
            "2560 ms for a step of 4.0 sequences at 100 tokens; predicted were 2048 ms (+25%)");
}

TEST(PredictionWatchTest, SecondsFarFromThePredictionAreNone) {
  Computing replica;
  for (int i = 0; i < 100; ++i) {
    replica.Seconds(7, absl::Milliseconds(40));
    replica.Seconds(1, absl::Milliseconds(10));
  }
  EXPECT_EQ(replica.warnings(), 0);
  // Nor is one step that stood still for a minute.
  replica.Seconds(100, absl::Milliseconds(10));
  const size_t compared = replica.asked.size();
  Look(replica.watch,
       {.steps = 1'000'000,
        .decode_steps = 1'000'000,
        .decode_rows = 4'000'000,
        .decode_context = 400'000'000,
        .decode_time = absl::Hours(1)},
       replica.predictor);
  EXPECT_EQ(replica.asked.size(), compared + 1);
  EXPECT_EQ(replica.warnings(), 0);
}

serving::ReplicaLoad Load(int64_t steps, int64_t rows, int64_t context, absl::Duration time) {
  return {.steps = steps,
          .decode_steps = steps,
          .decode_rows = rows,
          .decode_context = context,
          .decode_time = time};
}

// A coordinator that was started again knows nothing of the minutes before.
TEST(PredictionWatchTest, AReplicasLifeBeforeItsFirstReportIsNotCompared) {
  PredictionWatch watch(0.2);
  watch.TakeUp({});
  EXPECT_THAT(Look(watch, Load(1'000'000, 9'000'000, 9, absl::Hours(3))), IsEmpty());
  EXPECT_FALSE(watch.Decodes().has_value());
  Look(watch, Load(1'000'500, 9'000'500, 9, absl::Hours(3) + absl::Seconds(1)));
  ASSERT_TRUE(watch.Decodes().has_value());
  EXPECT_EQ(watch.Decodes()->steps, 500);
  EXPECT_EQ(watch.Decodes()->decodes, 1);
}

// Workers are not believed, and a plan of which nothing can be said is none to hold steps against.
TEST(PredictionWatchTest, WhatCannotBeIsNotCompared) {
  PredictionWatch watch(0.2);
  const double nan = std::numeric_limits<double>::quiet_NaN();
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  const absl::Duration second = absl::Seconds(1);
  Look(watch, Load(1, 1, 1, absl::ZeroDuration()));
  serving::ReplicaLoad host = Load(600, 1000, 0, 9 * second);
  host.host_time = -second;
  for (const serving::ReplicaLoad& load :
       {Load(100, 99, 1, second), Load(100, 300, 1, 3 * second), Load(400, 700, 0, 5 * second),
        Load(500, 900, 0, absl::Seconds(nan)), Load(600, 1000, 0, absl::InfiniteDuration()),
        Load(kMost, kMost, kMost, 7 * second), Load(-kMost - 1, 0, 0, 8 * second), host}) {
    EXPECT_THAT(Look(watch, load), IsEmpty()) << load.decode_steps;
  }
  EXPECT_FALSE(watch.Decodes().has_value());
  // From then on it is believed again.
  Look(watch, Load(1000, 1000, 0, second));
  EXPECT_THAT(Look(watch, Load(2000, 2000, 0, 2 * second)), SizeIs(1));

  PredictionWatch silent(0.2);
  silent.TakeUp(Load(1, 1, 1, absl::ZeroDuration()));
  EXPECT_THAT(Look(silent, Load(20, 20, 1, 2 * second), Always(absl::ZeroDuration())), IsEmpty());
}

// Steps with prompts have a line, a minute and a warning of their own.
TEST(PredictionWatchTest, StepsWithPromptsAreHeldAgainstTheirOwnPrediction) {
  Computing replica;
  for (int second = 0; second < 60; ++second) {
    for (int i = 0; i < 10; ++i) replica.Prompt(absl::Milliseconds(120), 86);
    replica.Compare();
  }
  ASSERT_EQ(replica.remarks.size(), 2U);
  EXPECT_FALSE(replica.remarks[0].warns);
  EXPECT_TRUE(replica.remarks[1].warns);
  EXPECT_EQ(FormatComparison(replica.remarks[0].comparison),
            "120 ms for a step of 86.0 rows of prompts beside 1.0 sequences; predicted were 96 ms "
            "(+25%)");
  const plan::StepMeans& asked = replica.asked.front();
  EXPECT_EQ(asked.decodes, 1);
  EXPECT_EQ(asked.context, 70);
  EXPECT_EQ(asked.prompts, 1);
  EXPECT_EQ(asked.prompt_rows, 86);
  EXPECT_EQ(asked.prompt_context, 42.5);
  EXPECT_EQ(asked.outputs, 1);
  EXPECT_EQ(asked.behind_nothing, 0);
  EXPECT_EQ(asked.behind_decodes, 1);
  EXPECT_FALSE(replica.watch.Decodes().has_value());
  // Those that decode alone are compared beside them.
  replica.Second(absl::Milliseconds(10));
  EXPECT_NEAR(replica.watch.Decodes()->excess(), 0, 1e-9);
  EXPECT_NEAR(replica.watch.Prompts()->excess(), 0.25, 1e-9);
}

// A prediction is no straight line: one of a mean of small and large steps would be too low.
TEST(PredictionWatchTest, StepsOfUnlikeSizeArePredictedApart) {
  Computing replica;
  for (int i = 0; i < 10; ++i) {
    replica.Prompt(absl::Milliseconds(20), 10);
    replica.Prompt(absl::Milliseconds(500), 490);
  }
  replica.Compare();
  ASSERT_EQ(replica.asked.size(), 2U);
  EXPECT_EQ(replica.asked[0].prompt_rows, 10);
  EXPECT_EQ(replica.asked[1].prompt_rows, 490);
  EXPECT_EQ(replica.watch.Prompts()->steps, 20);
  EXPECT_EQ(replica.watch.Prompts()->prompt_rows, 250);
  EXPECT_NEAR(replica.watch.Prompts()->excess(), 0, 1e-9);
}

TEST(PredictionWatchTest, StepsWithPromptsThatCannotBeAreNotCompared) {
  const serving::PromptSteps well = {.steps = 10,
                                     .behind_nothing = 4,
                                     .behind_decodes = 6,
                                     .prompts = 10,
                                     .rows = 100,
                                     .outputs = 10,
                                     .time = absl::Seconds(2)};
  const auto remarks = [&](auto change) {
    PredictionWatch watch(0.2);
    watch.TakeUp({.steps = 1});
    serving::PromptSteps steps = well;
    change(steps);
    return Look(watch, {.steps = 11, .prompt_steps = steps}).size();
  };
  using Steps = serving::PromptSteps;
  EXPECT_EQ(remarks([](Steps&) {}), 1);
  EXPECT_EQ(remarks([](Steps& steps) { steps.prompts = 9; }), 0);
  EXPECT_EQ(remarks([](Steps& steps) { steps.rows = 9; }), 0);
  EXPECT_EQ(remarks([](Steps& steps) { steps.outputs = 101; }), 0);
  EXPECT_EQ(remarks([](Steps& steps) { steps.behind_nothing = 5; }), 0);
  EXPECT_EQ(remarks([](Steps& steps) { steps.context = -1; }), 0);
  EXPECT_EQ(remarks([](Steps& steps) { steps.rows = int64_t{1} << 62; }), 0);
  EXPECT_EQ(remarks([](Steps& steps) { steps.time = absl::InfiniteDuration(); }), 0);
}

// Sums of what hostile workers count stay what they can be: nothing that was before counts on.
TEST(PredictionWatchTest, CountersThatFallBeginAnew) {
  constexpr int64_t kMost = int64_t{1} << 57;
  const absl::Duration short_time = absl::Milliseconds(10);
  PredictionWatch watch(0.2);
  watch.TakeUp({.steps = 1});
  for (int i = 0; i < 200; ++i) {
    watch.TakeUp(Load(kMost, kMost, kMost, short_time));
    watch.TakeUp(Load(1, 1, 1, absl::ZeroDuration()));
    watch.TakeUp(Load(kMost, kMost, kMost, short_time));
    watch.TakeUp(Load(-1, 1, 1, absl::ZeroDuration()));  // which cannot be at all
  }
  EXPECT_THAT(Look(watch, Always(absl::Milliseconds(1))), IsEmpty());
  // Steps of the whole replica fall, which these are among.
  for (int i = 1; i < 300; ++i) {
    serving::ReplicaLoad load = Load(i, i, i, i * short_time);
    load.steps = i % 2 == 0 ? kMost : 1;
    watch.TakeUp(load);
  }
  EXPECT_THAT(Look(watch, Always(absl::Milliseconds(1))), IsEmpty());
  // The longest life of 60 comparisons.
  for (int i = 0; i < 100; ++i) {
    watch.TakeUp(Load(1, 1, 1, absl::ZeroDuration()));
    Look(watch, Load(kMost, kMost, kMost, absl::Seconds(2)));
  }
  ASSERT_TRUE(watch.Decodes().has_value());
  EXPECT_EQ(watch.Decodes()->steps, 60 * (kMost - 1));
}

TEST(PredictionWatchTest, CausesAreNamed) {
  const StepComparison slow = {.measured = absl::Milliseconds(20),
                               .predicted = absl::Milliseconds(10)};
  StepComparison busy = slow;
  busy.host_time = absl::Milliseconds(15);
  const StepComparison fast = {.measured = absl::Milliseconds(5),
                               .predicted = absl::Milliseconds(10)};
  EXPECT_THAT(LikelyCause(slow, false, true),
              HasSubstr("assumed; workers that are started with --probe"));
  EXPECT_THAT(LikelyCause(slow, false, false), HasSubstr("assumed; the workers' log"));
  EXPECT_THAT(LikelyCause(slow, true, true), HasSubstr("a GPU of its hosts"));
  EXPECT_THAT(LikelyCause(slow, true, false), HasSubstr("use the cores or the memory of"));
  EXPECT_THAT(LikelyCause(busy, true, false),
              HasSubstr("the thread that schedules needs 15 ms a step"));
  EXPECT_THAT(LikelyCause(fast, true, false), HasSubstr("were busy with other things"));
}

}  // namespace
}  // namespace skein::coordinator
