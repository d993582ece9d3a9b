#include "supervisor/watch.h"

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "base/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace skein::supervisor {
namespace {

using State = JobInfo::State;
using ::testing::HasSubstr;
using ::testing::Optional;

struct JobCase {
  std::string name;
  std::vector<std::pair<double, State>> answers;  // seconds since the one before
  std::string verdict;  // part of what the last answer leads to; empty: nothing. Earlier: nothing
  bool serving = false;
};

class JobWatchTest : public ::testing::TestWithParam<JobCase> {};

TEST_P(JobWatchTest, Concludes) {
  SimulatedClock clock;
  JobWatch watch(absl::Seconds(60));
  const JobCase& test = GetParam();
  for (size_t i = 0; i < test.answers.size(); ++i) {
    SCOPED_TRACE(i);
    clock.Advance(absl::Seconds(test.answers[i].first));
    const auto verdict = watch.Observe({test.answers[i].second, "rank 1 fell silent"}, clock.Now());
    if (i + 1 < test.answers.size() || test.verdict.empty()) {
      EXPECT_EQ(verdict, std::nullopt);
    } else {
      EXPECT_THAT(verdict, Optional(HasSubstr(test.verdict)));
      EXPECT_EQ(watch.Observe({State::kLost, ""}, clock.Now()), std::nullopt);  // said once
    }
  }
  EXPECT_EQ(watch.serving(), test.serving);
}

INSTANTIATE_TEST_SUITE_P(
    , JobWatchTest,
    ::testing::Values(
        JobCase{"Lost", {{0, State::kServing}, {1, State::kLost}}, "as lost: rank 1 fell silent"},
        JobCase{"Ended", {{0, State::kServing}, {1, State::kEnded}}, "ended: rank 1 fell silent"},
        JobCase{"Serving", {{0, State::kLoading}, {9999, State::kServing}}, "", true},
        JobCase{"LoadingTakesItsTime", {{0, State::kLoading}, {9999, State::kLoading}}, ""},
        JobCase{"NoRankComes",
                {{0, State::kUnknown}, {59.9, State::kUnknown}, {0.1, State::kUnknown}},
                "no rank of it has come to the coordinator for 1m"},
        JobCase{"RanksAreMissing",
                {{0, State::kUnknown}, {59.9, State::kWaiting}, {0.1, State::kWaiting}},
                "not every rank of it"},
        JobCase{"OnlyTimeWithAnAnsweringCoordinatorCounts",
                {{0, State::kUnknown},
                 {59, State::kNoAnswer},
                 {1, State::kUnknown},
                 {59, State::kUnknown}},
                ""},
        JobCase{"ANewCoordinatorMustGetItBack",
                {{0, State::kServing},
                 {500, State::kNoAnswer},
                 {1, State::kUnknown},
                 {60, State::kUnknown}},
                "no rank of it"},
        JobCase{"ANewCoordinatorGetsItBack",
                {{0, State::kServing}, {1, State::kUnknown}, {59, State::kServing}},
                "",
                true},
        JobCase{"NoAnswerSaysNothing", {{0, State::kServing}, {9999, State::kNoAnswer}}, ""},
        JobCase{"AnOldCoordinator", {{0, State::kCannotTell}, {9999, State::kCannotTell}}, ""}),
    [](const auto& info) { return info.param.name; });

class SilenceWatchTest : public ::testing::Test {
 protected:
  // One question a second.
  std::optional<absl::Duration> Ask(bool answered, int times) {
    std::optional<absl::Duration> silence;
    for (int i = 0; i < times && !silence; ++i) {
      clock_.Advance(absl::Seconds(1));
      silence = watch_.Observe(answered, clock_.Now());
    }
    return silence;
  }

  SimulatedClock clock_;
  SilenceWatch watch_{absl::Seconds(10), absl::Seconds(60), clock_.Now()};
};

TEST_F(SilenceWatchTest, TenSecondsInARowAreASilence) {
  EXPECT_EQ(Ask(true, 3), std::nullopt);
  EXPECT_EQ(Ask(false, 9), std::nullopt);
  EXPECT_THAT(Ask(false, 1), Optional(absl::Seconds(10)));
  EXPECT_EQ(Ask(false, 30), std::nullopt);  // said once
}

TEST_F(SilenceWatchTest, AnAnswerEndsIt) {
  EXPECT_EQ(Ask(true, 1), std::nullopt);
  EXPECT_EQ(Ask(false, 9), std::nullopt);
  EXPECT_EQ(Ask(true, 1), std::nullopt);
  EXPECT_EQ(Ask(false, 9), std::nullopt);
}

TEST_F(SilenceWatchTest, BeforeTheFirstAnswerTheStartsLimitCounts) {
  EXPECT_EQ(Ask(false, 59), std::nullopt);
  EXPECT_THAT(Ask(false, 1), Optional(absl::Minutes(1)));
}

TEST_F(SilenceWatchTest, OneThatIsKnownToBeUpMustAnswer) {
  EXPECT_EQ(Ask(false, 20), std::nullopt);
  watch_.Started(clock_.Now());
  EXPECT_EQ(Ask(false, 5), std::nullopt);
  watch_.Started(clock_.Now());  // no answer
  EXPECT_EQ(Ask(false, 4), std::nullopt);
  EXPECT_THAT(Ask(false, 1), Optional(absl::Seconds(10)));
}

// The supervisor itself stood still.
TEST_F(SilenceWatchTest, TimeWithoutQuestionsIsNoSilence) {
  EXPECT_EQ(Ask(true, 1), std::nullopt);
  clock_.Advance(absl::Hours(1));
  EXPECT_EQ(Ask(false, 4), std::nullopt);
  EXPECT_EQ(Ask(true, 1), std::nullopt);
  clock_.Advance(absl::Hours(1));
  EXPECT_NE(Ask(false, 5), std::nullopt);
}

// Whether a job that ended with status 0 has drained, by what was said before and afterwards.
std::optional<bool> Drained(const std::vector<State>& before, State after) {
  JobWatch watch(absl::Seconds(60));
  for (const State state : before) watch.Observe({state, ""}, absl::UnixEpoch());
  return watch.Drained(after);
}

TEST(DrainedTest, TheCoordinatorSaysSo) {
  EXPECT_THAT(Drained({State::kServing}, State::kEnded), Optional(true));
  EXPECT_THAT(Drained({State::kServing}, State::kLost), Optional(false));
  EXPECT_THAT(Drained({State::kServing, State::kEnded}, State::kNoAnswer), Optional(true));
  EXPECT_THAT(Drained({State::kServing, State::kEnded}, State::kUnknown), Optional(true));
}

TEST(DrainedTest, OneThatLeftHasDrainedItsJobs) {
  EXPECT_THAT(Drained({State::kServing}, State::kGone), Optional(true));
  EXPECT_THAT(Drained({}, State::kCannotTell), Optional(true));
}

TEST(DrainedTest, OneThatWasRestartedKnowsOfNoDrain) {
  EXPECT_THAT(Drained({State::kUnknown}, State::kUnknown), Optional(true));
  EXPECT_THAT(Drained({State::kUnknown, State::kWaiting}, State::kUnknown), Optional(false));
  EXPECT_THAT(Drained({State::kServing, State::kNoAnswer}, State::kUnknown), Optional(false));
}

TEST(DrainedTest, TheNextAnswerMayTell) {
  for (const State state : {State::kNoAnswer, State::kWaiting, State::kLoading, State::kServing}) {
    EXPECT_EQ(Drained({State::kServing}, state), std::nullopt);
  }
}

}  // namespace
}  // namespace skein::supervisor
