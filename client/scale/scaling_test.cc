#include "client/scale/scaling.h"

#include <string>

#include "base/json/json.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace skein::client {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::DoubleNear;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

// Two numbers of ranks; of the second both layouts, of which the other one proves to be faster.
ScalingExperiment Experiment() {
  return {.model = "a <model>",
          .prompt_tokens = 128,
          .steps = 64,
          .spread = 0.07,
          .runs = {
              {{1, 1, 1}, 2, true, 0.010, 0.008, {{0.010, 0.008}}},
              {{2, 1, 1}, 2, true, 0.006, 0.005, {{0.006, 0.005}}},
              {{1, 2, 1}, 2, false, 0.007, 0.004, {{0.007, 0.004}}},
          }};
}

TEST(ScalingTest, SpeedupIsOfTokensAgainstTheFewestRanks) {
  const ScalingExperiment experiment = Experiment();
  EXPECT_DOUBLE_EQ(experiment.SpeedupOf(experiment.runs[0])->factor, 1);
  const Speedup chosen = *experiment.SpeedupOf(experiment.runs[1]);
  EXPECT_DOUBLE_EQ(chosen.factor, 1.6);
  EXPECT_DOUBLE_EQ(chosen.efficiency, 0.8);
  EXPECT_DOUBLE_EQ(experiment.SpeedupOf(experiment.runs[2])->efficiency, 1);
}

TEST(ScalingTest, TheFastestByPredictionIsChosenOfEachLoad) {
  std::vector<ScalingRun> runs = Experiment().runs;
  runs.push_back({.layout = {1, 2, 1}, .batch = 8, .predicted_s = 0.1});
  runs.push_back({.layout = {2, 1, 1}, .batch = 8, .chosen = true, .predicted_s = 0.2});
  MarkChosen(runs);
  std::vector<bool> chosen;
  for (const ScalingRun& run : runs) chosen.push_back(run.chosen);
  EXPECT_THAT(chosen, ElementsAre(true, true, false, true, false));
}

TEST(ScalingTest, WeakScalingComparesEqualLoadsOfARank) {
  ScalingExperiment experiment = Experiment();
  experiment.weak = true;
  EXPECT_DOUBLE_EQ(experiment.SpeedupOf(experiment.runs[1])->factor, 1);  // 1 a rank: its own base
  experiment.runs[1].batch = 4;
  const Speedup grown = *experiment.SpeedupOf(experiment.runs[1]);
  EXPECT_DOUBLE_EQ(grown.factor, 3.2);
  EXPECT_DOUBLE_EQ(grown.efficiency, 1.6);
}

TEST(ScalingTest, WhatWasNotMeasuredHasNoSpeedup) {
  ScalingExperiment experiment = Experiment();
  experiment.runs[1].step_s.reset();
  EXPECT_FALSE(experiment.SpeedupOf(experiment.runs[1]).has_value());
  EXPECT_TRUE(experiment.SpeedupOf(experiment.runs[2]).has_value());
  experiment.runs[0].step_s.reset();
  EXPECT_FALSE(experiment.SpeedupOf(experiment.runs[2]).has_value());
  EXPECT_THAT(experiment.Errors(), ElementsAre(DoubleNear(0.75, 1e-9)));
}

// Layouts of unlike ranks or batches, or less than 15% apart, are no pair.
TEST(ScalingTest, TheOrderOfLayoutsIsThatOfPairsThatDiffer) {
  ScalingExperiment experiment = Experiment();
  EXPECT_EQ(experiment.Order().pairs, 1);
  EXPECT_EQ(experiment.Order().wrong, 1);
  experiment.runs.push_back({{1, 1, 2}, 2, false, 0.009, 0.0056, {{0.009, 0.0056}}});
  EXPECT_EQ(experiment.Order().pairs, 2);  // 0.004 and 0.0056 are right; 0.005 is 12% from it
  EXPECT_EQ(experiment.Order().wrong, 1);
  EXPECT_THAT(FormatScaling(experiment),
              HasSubstr("\nlayouts that differ by more than 15%: 1 of 2 pairs predicted the wrong "
                        "way round\n"));
  const nlohmann::json json = *ParseJson(ScalingToJson(experiment));
  EXPECT_EQ(json["order"]["pairs"], 2);
  EXPECT_EQ(json["order"]["wrong"], 1);
  experiment.runs[2].batch = 4;
  EXPECT_EQ(experiment.Order().pairs, 0);
  EXPECT_THAT(FormatScaling(experiment), Not(HasSubstr("layouts that differ")));
}

TEST(ScalingTest, TheTableTellsErrorsAndWhatWasChosen) {
  EXPECT_EQ(
      FormatScaling(Experiment()),
      "ranks  layout              batch    predicted     measured   error   tokens/s  speed-up "
      "efficiency\n"
      "1      tp=1,pp=1,dp=1          2    10.000 ms     8.000 ms  +25.0%        250         1 "
      "      100%\n"
      "2      tp=2,pp=1,dp=1          2     6.000 ms     5.000 ms  +20.0%        400       1.6 "
      "       80%\n"
      "2      tp=1,pp=2,dp=1          2     7.000 ms     4.000 ms  +75.0%        500         2 "
      "      100%\n"
      "\n"
      "steps are predicted with an error of 25.0% at the median, 75.0% at most; figures spread "
      "by 7%\n"
      "layouts that differ by more than 15%: 1 of 1 pair predicted the wrong way round\n"
      "2 ranks, batch 2: tp=2,pp=1,dp=1 is chosen, and takes 25.0% longer than tp=1,pp=2,dp=1\n");
  ScalingExperiment before = Experiment();
  for (ScalingRun& run : before.runs) run.step_s.reset();
  EXPECT_THAT(FormatScaling(before), Not(AnyOf(HasSubstr("steps are predicted"), HasSubstr("%"))));
}

TEST(ScalingTest, PromptsHaveATableOfTheirOwn) {
  ScalingExperiment experiment = Experiment();
  experiment.prompts = {{{1, 1, 1}, 0.12, 0.1, {{0.12, 0.1}}},
                        {{2, 1, 1}, 0.03, 0.05, {{0.03, 0.05}}},
                        {.layout = {1, 2, 1}, .predicted_s = 0.09}};
  EXPECT_THAT(
      FormatScaling(experiment),
      AllOf(HasSubstr("\n\nranks  layout             prompt    predicted     measured   error\n"
                      "1      tp=1,pp=1,dp=1        128   120.000 ms   100.000 ms  +20.0%\n"
                      "2      tp=2,pp=1,dp=1        128    30.000 ms    50.000 ms  -40.0%\n"
                      "2      tp=1,pp=2,dp=1        128    90.000 ms\n\n"),
            HasSubstr("\nprompts with one of 30.0% at the median, 40.0% at most\n")));
  const nlohmann::json json = *ParseJson(ScalingToJson(experiment));
  ASSERT_EQ(json["prompts"].size(), 3);
  EXPECT_NEAR(json["prompts"][1]["error"].get<double>(), -0.4, 1e-9);
  EXPECT_TRUE(json["prompts"][2]["measured_ms"].is_null());
}

TEST(ScalingTest, JsonHasNothingMeasuredBeforeItIs) {
  ScalingExperiment experiment = Experiment();
  experiment.runs[2].step_s.reset();
  const nlohmann::json json = *ParseJson(ScalingToJson(experiment));
  EXPECT_EQ(json["scaling"], "strong");
  ASSERT_EQ(json["runs"].size(), 3);
  EXPECT_EQ(json["runs"][1]["layout"], "tp=2,pp=1,dp=1");
  EXPECT_DOUBLE_EQ(json["runs"][1]["measured_ms"].get<double>(), 5);
  EXPECT_DOUBLE_EQ(json["runs"][1]["speedup"].get<double>(), 1.6);
  EXPECT_NEAR(json["runs"][1]["error"].get<double>(), 0.2, 1e-9);
  EXPECT_TRUE(json["runs"][2]["measured_ms"].is_null());
  EXPECT_FALSE(json["runs"][2].contains("error"));
}

// A host that is fast in a round and slow in the next is predicted to be each.
TEST(ScalingTest, TheErrorIsThatOfARound) {
  ScalingExperiment experiment = Experiment();
  ScalingRun& run = experiment.runs[0];
  run.rounds = {{0.010, 0.010}, {0.010, 0.008}, {0.022, 0.020}};
  run.predicted_s = 0.010;
  run.step_s = 0.010;
  EXPECT_NEAR(run.error(), 0.1, 1e-9);
  const nlohmann::json json = *ParseJson(ScalingToJson(experiment));
  EXPECT_NEAR(json["runs"][0]["error"].get<double>(), 0.1, 1e-9);
  ASSERT_EQ(json["runs"][0]["rounds"].size(), 3);
  EXPECT_NEAR(json["runs"][0]["rounds"][2]["predicted_ms"].get<double>(), 22, 1e-9);
  EXPECT_NEAR(json["runs"][0]["rounds"][2]["measured_ms"].get<double>(), 20, 1e-9);
}

TEST(ScalingTest, ThePictureHasEachRunAndTheSpeedups) {
  const std::string svg = ScalingSvg(Experiment());
  EXPECT_THAT(svg, AllOf(HasSubstr("a &lt;model&gt;, strong scaling"), HasSubstr("tp=1,pp=2,dp=1"),
                         HasSubstr("4.000 ms, +75.0%"), HasSubstr("tp=2,pp=1,dp=1, batch 2: 1.6")));
}

}  // namespace
}  // namespace skein::client
