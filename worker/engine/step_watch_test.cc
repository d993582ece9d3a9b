#include "worker/engine/step_watch.h"

#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "parallel/comm/inprocess/inprocess.h"

namespace skein::worker {
namespace {

struct Seen {
  int64_t rows;
  absl::Duration time;
};

struct DeadlineCase {
  std::string name;
  std::vector<Seen> seen;
  int64_t rows;
  absl::Duration predicted;
  absl::Duration deadline;
};

void PrintTo(const DeadlineCase& c, std::ostream* out) { *out << c.name; }

class StepTimesTest : public ::testing::TestWithParam<DeadlineCase> {};

TEST_P(StepTimesTest, PredictsFromWhatWasSeen) {
  const DeadlineCase& c = GetParam();
  StepTimes times;
  for (const Seen& seen : c.seen) times.Observe(seen.rows, seen.time);
  EXPECT_NEAR(absl::ToDoubleSeconds(times.Predict(c.rows)), absl::ToDoubleSeconds(c.predicted),
              1e-6);
  EXPECT_NEAR(absl::ToDoubleSeconds(times.Deadline(c.rows)), absl::ToDoubleSeconds(c.deadline),
              1e-5);
}

const Seen kDecode = {1, absl::Milliseconds(50)};
const Seen kPrefill = {512, absl::Seconds(8)};

TEST(StepTimesSizeTest, BeforeTheFirstStepTheModelsSizeTells) {
  constexpr int64_t kMiB = 1 << 20;
  EXPECT_EQ(StepTimes(16 * 1024 * kMiB).Predict(100), absl::Seconds(10));
  // A larger model has more machines.
  EXPECT_EQ(StepTimes(64 * 1024 * kMiB).Predict(100), absl::Seconds(10));
  // A frozen thread in the first prompt of a small model is named after 30 s, not minutes.
  EXPECT_EQ(StepTimes(16 * kMiB).Deadline(1024), absl::Seconds(30));
  EXPECT_EQ(ResultWatch(/*alone=*/true, std::nullopt, 16 * kMiB).Timeout(1024), absl::Seconds(30));
  EXPECT_EQ(ResultWatch(/*alone=*/true, std::nullopt).Timeout(1000), absl::Seconds(1000));
}

INSTANTIATE_TEST_SUITE_P(
    Steps, StepTimesTest,
    ::testing::Values(
        DeadlineCase{"first_short", {}, 5, absl::Milliseconds(500), absl::Seconds(30)},
        DeadlineCase{"first_long", {}, 2000, absl::Seconds(200), absl::Seconds(2000)},
        DeadlineCase{"decode", {kDecode, kPrefill}, 1, absl::Milliseconds(50), absl::Seconds(30)},
        DeadlineCase{"prefill", {kDecode, kPrefill}, 512, absl::Seconds(8), absl::Seconds(80)},
        DeadlineCase{"between", {kDecode, kPrefill}, 16, absl::Seconds(8), absl::Seconds(80)},
        DeadlineCase{"same_size", {kPrefill}, 1000, absl::Seconds(8), absl::Seconds(80)},
        DeadlineCase{"larger_than_all", {kPrefill}, 2048, absl::Seconds(32), absl::Seconds(320)},
        DeadlineCase{"much_larger", {kDecode}, 400, absl::Seconds(20), absl::Seconds(200)},
        // A slow moment of a single row is no measure of many.
        DeadlineCase{"larger_after_a_slow_moment",
                     {kDecode, {1, absl::Seconds(2)}},
                     256,
                     absl::Milliseconds(50 * 256),
                     absl::Milliseconds(500 * 256)},
        DeadlineCase{"no_rows", {kDecode}, 0, absl::Milliseconds(50), absl::Seconds(30)},
        DeadlineCase{"slowest_counts",
                     {{1, absl::Seconds(7)}, kDecode, kDecode},
                     1,
                     absl::Seconds(7 * 0.99 * 0.99),
                     absl::Seconds(70 * 0.99 * 0.99)},
        DeadlineCase{"larger_again",
                     {kDecode, {1, absl::Seconds(4)}},
                     1,
                     absl::Seconds(4),
                     absl::Seconds(40)}),
    [](const auto& info) { return info.param.name; });

TEST(StepWatch, SetsTheDeadlineOfTrackerAndGroups) {
  auto group = comm::MakeInProcessGroup(2, "pair");
  comm::OperationTracker tracker;
  StepWatch watch(&tracker, {group[0].get()}, std::nullopt);
  watch.Begin(7, 1000);
  EXPECT_EQ(tracker.Read().step, 7);
  EXPECT_EQ(tracker.Read().deadline, absl::Seconds(1000));
  watch.End();
  EXPECT_EQ(tracker.Read().step, std::nullopt);
  watch.Begin(8, 1000);  // now it is known that steps are fast
  EXPECT_EQ(tracker.Read().deadline, absl::Seconds(30));
}

// The last stage may still compute a long prompt when the first waits for its tokens.
TEST(StepWatch, AShortStepMayWaitForALongOne) {
  comm::OperationTracker tracker;
  StepWatch watch(&tracker, {}, std::nullopt);
  watch.Begin(0, 2000);
  watch.Begin(1, 1);
  EXPECT_EQ(tracker.Read().deadline, absl::Seconds(2001));
  watch.End();
  watch.Begin(2, 1);  // step 1 is still under way
  EXPECT_EQ(tracker.Read().deadline, absl::Seconds(2001));
  watch.End();
  watch.End();
  watch.Begin(3, 1);
  EXPECT_EQ(tracker.Read().deadline, absl::Seconds(30));
}

// A host may be a step ahead of its device.
TEST(StepWatch, TellsOfTheOldestStepUnderWayAndOfTheHostsOwnCalls) {
  comm::OperationTracker tracker;
  comm::OperationTracker::Group* const hop = tracker.AddGroup("hop", {0, 1}, 0);
  StepWatch watch(&tracker, {}, std::nullopt);
  watch.Begin(5, 1);
  watch.Begin(6, 1);
  EXPECT_EQ(tracker.Read().step, 5);
  {
    const comm::OperationTracker::Group::Entered entered(
        hop, {.operation = comm::Operation::kReceive, .peer = 1, .number = 1});
    EXPECT_EQ(tracker.Read().step, 6);
  }
  watch.End();
  EXPECT_EQ(tracker.Read().step, 6);
  watch.End();
  EXPECT_EQ(tracker.Read().step, std::nullopt);
}

TEST(StepWatch, AFixedDeadlineStays) {
  comm::OperationTracker tracker;
  StepWatch watch(&tracker, {}, absl::Seconds(2));
  watch.Begin(0, 100000);
  EXPECT_EQ(tracker.Read().deadline, absl::Seconds(2));
}

struct ResultCase {
  std::string name;
  bool alone;
  std::optional<absl::Duration> fixed;
  std::vector<Seen> seen;
  int64_t rows;
  absl::Duration timeout;
};

void PrintTo(const ResultCase& c, std::ostream* out) { *out << c.name; }

class ResultWatchTest : public ::testing::TestWithParam<ResultCase> {};

TEST_P(ResultWatchTest, WaitsAsLongAsTheStepsRowsTell) {
  const ResultCase& c = GetParam();
  ResultWatch watch(c.alone, c.fixed);
  for (const Seen& seen : c.seen) watch.Observe(seen.rows, seen.time);
  EXPECT_NEAR(absl::ToDoubleSeconds(watch.Timeout(c.rows)), absl::ToDoubleSeconds(c.timeout), 1e-5);
}

INSTANTIATE_TEST_SUITE_P(
    Results, ResultWatchTest,
    ::testing::Values(
        ResultCase{"first_short", true, {}, {}, 5, absl::Seconds(30)},
        ResultCase{"first_long", true, {}, {}, 2000, absl::Seconds(2000)},
        ResultCase{"decode", true, {}, {kPrefill, kDecode, kDecode}, 1, absl::Seconds(30)},
        ResultCase{"prefill", true, {}, {kPrefill, kDecode, kDecode}, 512, absl::Seconds(79.2)},
        ResultCase{"after_a_prefill", true, {}, {kPrefill}, 1, absl::Seconds(80)},
        ResultCase{"with_others", false, {}, {kPrefill, kDecode, kDecode}, 1, absl::Seconds(70)},
        ResultCase{"fixed", true, absl::Seconds(4), {kPrefill}, 512, absl::Seconds(4)},
        ResultCase{"fixed_with_others", false, absl::Seconds(4), {}, 512, absl::Seconds(18)}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace skein::worker
