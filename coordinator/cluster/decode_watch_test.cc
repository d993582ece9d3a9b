#include "coordinator/cluster/decode_watch.h"

#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "serving/output.h"

namespace skein::coordinator {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

// A replica that decodes; 10 ms are predicted for every step.
class Decoding {
 public:
  // Steps for a second, as its leader counts them.
  void Second(absl::Duration each, int64_t rows = 4, int64_t context = 100) {
    const int64_t steps = absl::Seconds(1) / each;
    load_.steps += steps;
    load_.decode_steps += steps;
    load_.decode_rows += steps * rows;
    load_.decode_context += steps * rows * context;
    load_.decode_time += absl::Seconds(1);
    const std::optional<DecodeWatch::Remark> remark = watch.Look(load_);
    if (remark.has_value()) remarks.push_back(*remark);
  }
  void Seconds(int seconds, absl::Duration each) {
    for (int i = 0; i < seconds; ++i) Second(each);
  }
  Decoding() { watch.Look({.steps = 1}); }  // its first report

  int warnings() const {
    int count = 0;
    for (const DecodeWatch::Remark& remark : remarks) count += remark.warns ? 1 : 0;
    return count;
  }

  std::vector<std::pair<double, double>> asked;
  DecodeWatch watch{[this](double rows, double context) {
                      asked.emplace_back(rows, context);
                      return absl::Milliseconds(10);
                    },
                    /*tolerance=*/0.2};
  std::vector<DecodeWatch::Remark> remarks;

 private:
  serving::ReplicaLoad load_;
};

TEST(DecodeWatchTest, TheFirstSecondIsToldOnce) {
  Decoding replica;
  EXPECT_FALSE(replica.watch.Look({.steps = 99,
                                   .decode_steps = 99,
                                   .decode_rows = 99,
                                   .decode_time = absl::Milliseconds(999)}));
  EXPECT_FALSE(replica.watch.Recent().has_value());
  replica.Second(absl::Milliseconds(8));
  ASSERT_EQ(replica.remarks.size(), 1U);
  EXPECT_FALSE(replica.remarks[0].warns);
  EXPECT_THAT(replica.asked, ElementsAre(Pair(4, 100)));
  EXPECT_EQ(FormatComparison(replica.remarks[0].comparison),
            "8 ms for a step of 4.0 sequences at 100 tokens; predicted were 10 ms (-20%)");
  replica.Seconds(200, absl::Milliseconds(8));
  EXPECT_EQ(replica.remarks.size(), 1U);
}

// What is shown is of the last minute of steps, each step as long as it took.
TEST(DecodeWatchTest, AMeanIsOverStepsOfTheLastMinute) {
  Decoding replica;
  replica.Seconds(100, absl::Milliseconds(50));
  for (int i = 0; i < 30; ++i) replica.Second(absl::Milliseconds(20), 2, 300);
  for (int i = 0; i < 30; ++i) replica.Second(absl::Milliseconds(5), 6, 100);
  const std::optional<DecodeComparison> recent = replica.watch.Recent();
  ASSERT_TRUE(recent.has_value());
  EXPECT_EQ(recent->steps, 30 * 50 + 30 * 200);
  EXPECT_NEAR(recent->rows, (2 * 50 + 6 * 200) / 250.0, 1e-9);
  EXPECT_NEAR(recent->context, (300 * 2 * 50 + 100 * 6 * 200) / 1300.0, 1e-9);
  EXPECT_NEAR(absl::ToDoubleMilliseconds(recent->measured), 8, 1e-6);
  EXPECT_NEAR(recent->excess(), -0.2, 1e-9);
}

TEST(DecodeWatchTest, AMinuteFarFromItsPredictionIsAWarningOnce) {
  for (const absl::Duration far : {absl::Milliseconds(12.5), absl::Milliseconds(7)}) {
    Decoding replica;
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

TEST(DecodeWatchTest, SecondsFarFromThePredictionAreNone) {
  Decoding replica;
  for (int i = 0; i < 100; ++i) {
    replica.Seconds(7, absl::Milliseconds(40));
    replica.Seconds(1, absl::Milliseconds(10));
  }
  EXPECT_EQ(replica.warnings(), 0);
  // Nor is one step that stood still for a minute.
  replica.Seconds(100, absl::Milliseconds(10));
  replica.watch.Look({.steps = 1'000'000,
                      .decode_steps = 1'000'000,
                      .decode_rows = 1'000'000,
                      .decode_time = absl::Hours(1)});
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
TEST(DecodeWatchTest, AReplicasLifeBeforeItsFirstReportIsNotCompared) {
  DecodeWatch watch([](double, double) { return absl::Milliseconds(1); }, 0.2);
  watch.Look({});
  EXPECT_FALSE(watch.Look(Load(1'000'000, 9'000'000, 9, absl::Hours(3))).has_value());
  EXPECT_FALSE(watch.Recent().has_value());
  watch.Look(Load(1'000'500, 9'000'500, 9, absl::Hours(3) + absl::Seconds(1)));
  ASSERT_TRUE(watch.Recent().has_value());
  EXPECT_EQ(watch.Recent()->steps, 500);
  EXPECT_EQ(watch.Recent()->rows, 1);
}

// Workers are not believed, and a plan of which nothing can be said is none to hold steps against.
TEST(DecodeWatchTest, WhatCannotBeIsNotCompared) {
  DecodeWatch watch([](double, double) { return absl::Milliseconds(1); }, 0.2);
  const double nan = std::numeric_limits<double>::quiet_NaN();
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  const absl::Duration second = absl::Seconds(1);
  watch.Look(Load(1, 1, 1, absl::ZeroDuration()));
  serving::ReplicaLoad host = Load(600, 1000, 0, 9 * second);
  host.host_time = -second;
  for (const serving::ReplicaLoad& load :
       {Load(100, 99, 1, second), Load(100, 300, 1, 3 * second), Load(400, 700, 0, 5 * second),
        Load(500, 900, 0, absl::Seconds(nan)), Load(600, 1000, 0, absl::InfiniteDuration()),
        Load(kMost, kMost, kMost, 7 * second), Load(-kMost - 1, 0, 0, 8 * second), host}) {
    EXPECT_FALSE(watch.Look(load).has_value()) << load.decode_steps;
  }
  EXPECT_FALSE(watch.Recent().has_value());
  // From then on it is believed again.
  watch.Look(Load(1000, 1000, 0, second));
  EXPECT_TRUE(watch.Look(Load(2000, 2000, 0, 2 * second)).has_value());

  DecodeWatch silent([](double, double) { return absl::ZeroDuration(); }, 0.2);
  silent.Look(Load(1, 1, 1, absl::ZeroDuration()));
  EXPECT_FALSE(silent.Look(Load(20, 20, 1, 2 * second)));
}

TEST(DecodeWatchTest, CausesAreNamed) {
  const DecodeComparison slow = {.measured = absl::Milliseconds(20),
                                 .predicted = absl::Milliseconds(10)};
  DecodeComparison busy = slow;
  busy.host_time = absl::Milliseconds(15);
  const DecodeComparison fast = {.measured = absl::Milliseconds(5),
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
