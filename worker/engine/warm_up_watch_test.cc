#include "worker/engine/warm_up_watch.h"

#include <optional>

#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "base/test_util.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "parallel/comm/call.h"

namespace skein::worker {
namespace {

using ::testing::ContainsRegex;

constexpr absl::Duration kTimeout = absl::Milliseconds(1500);

struct Told {
  absl::Status why;
  absl::Notification heard;
  std::function<void(const absl::Status&)> listener() {
    return [this](const absl::Status& status) {
      why = status;
      heard.Notify();
    };
  }
};

TEST(WarmUpWatchTest, ARankThatHangsTellsItsStageAtOnce) {
  comm::OperationTracker tracker;
  Told told;
  WarmUpWatch watch(&tracker, kTimeout, told.listener());
  watch.Enter("loading kernels");
  watch.Enter("capturing the graph of 64 rows");
  ASSERT_TRUE(told.heard.WaitForNotificationWithTimeout(kTimeout + absl::Seconds(3)));
  EXPECT_THAT(told.why, StatusIs(absl::StatusCode::kDeadlineExceeded,
                                 ContainsRegex("^warming up was not over within 1.5s: it is "
                                               "capturing the graph of 64 rows, for 1.[4-9]s$")));
}

TEST(WarmUpWatchTest, ARankThatWaitsLetsTheOtherOneSpeakFirst) {
  comm::OperationTracker tracker;
  comm::OperationTracker::Group& group = *tracker.AddGroup("tp", {4, 5}, 0);
  Told told;
  const absl::Time begin = absl::Now();
  WarmUpWatch watch(&tracker, kTimeout, told.listener());
  watch.Enter("running the largest batch");
  const comm::OperationTracker::Group::Entered entered(
      &group, {.operation = comm::Operation::kAllReduce, .number = 12});
  while (!told.heard.HasBeenNotified() && absl::Now() < begin + absl::Seconds(20)) {
    group.pulse().Beat();
    absl::SleepFor(absl::Milliseconds(20));
  }
  EXPECT_GE(absl::Now() - begin, kTimeout + WarmUpWatch::kGrace);
  EXPECT_THAT(
      told.why,
      StatusIs(absl::StatusCode::kDeadlineExceeded,
               ContainsRegex("running the largest batch, in all-reduce 12 of 'tp' with rank "
                             "5, for [67].*s$")));
}

// One that is stuck inside a call does not look for the others.
TEST(WarmUpWatchTest, ARankThatIsStuckInsideACallTellsAtOnce) {
  comm::OperationTracker tracker;
  comm::OperationTracker::Group& group = *tracker.AddGroup("tp", {4, 5}, 1);
  Told told;
  WarmUpWatch watch(&tracker, kTimeout, told.listener());
  const comm::OperationTracker::Group::Entered entered(
      &group, {.operation = comm::Operation::kAllReduce, .number = 12});
  EXPECT_TRUE(told.heard.WaitForNotificationWithTimeout(kTimeout + absl::Seconds(3)));
}

TEST(WarmUpWatchTest, OneThatEndsInTimeIsLeftAlone) {
  comm::OperationTracker tracker;
  {
    const WarmUpWatch watch(&tracker, absl::Hours(1), [](const absl::Status&) { FAIL(); });
  }
}

}  // namespace
}  // namespace skein::worker
