#include "worker/engine/device_watch.h"

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "base/test_util.h"
#include "gtest/gtest.h"
#include "kernels/testing/fake_executable.h"
#include "parallel/comm/operation_tracker.h"

namespace skein::worker {
namespace {

class Failing final : public kernels::FakeExecutable {
 public:
  absl::Status Health() const override {
    ++looks;
    if (silent) answers.WaitForNotification();
    return failed ? absl::InternalError("the GPU has failed") : absl::OkStatus();
  }
  std::string Newest() const override { return "step 7: 2 sequences of 2 rows"; }
  View port(kernels::BufferId, int) override { return {}; }

  std::atomic<bool> failed = false;
  std::atomic<bool> silent = false;
  mutable absl::Notification answers;
  mutable std::atomic<int> looks = 0;

 private:
  absl::Status Run(int, const kernels::Batch&, kernels::BatchResult&) override {
    return absl::OkStatus();
  }
};

class Looks final : public comm::DeviceReport {
 public:
  void Look() const override { ++looks; }
  std::optional<comm::Call> InProgress() const override { return std::nullopt; }
  int64_t entered() const override { return 0; }

  mutable std::atomic<int> looks = 0;
};

TEST(DeviceWatchTest, TellsAFailureOnce) {
  Failing executable;
  std::atomic<int> told = 0;
  absl::Status what;
  absl::Notification heard;
  {
    DeviceWatch watch(&executable,
                      [&](const absl::Status& why) {
                        what = why;
                        if (++told == 1) heard.Notify();
                      },
                      {.interval = absl::Milliseconds(1)});
    while (executable.looks < 3) absl::SleepFor(absl::Milliseconds(1));
    EXPECT_EQ(told, 0);
    executable.failed = true;
    EXPECT_TRUE(heard.WaitForNotificationWithTimeout(absl::Seconds(10)));
    absl::SleepFor(absl::Milliseconds(20));
  }
  EXPECT_EQ(told, 1);
  EXPECT_THAT(what, StatusIs(absl::StatusCode::kInternal, "the GPU has failed"));
}

// Heartbeats and reports go on meanwhile: what they read waits for no device.
TEST(DeviceWatchTest, TellsOfADriverThatDoesNotAnswer) {
  Failing executable;
  absl::Status what;
  absl::Notification heard;
  std::atomic<int> told = 0;
  {
    DeviceWatch watch(&executable,
                      [&](const absl::Status& why) {
                        what = why;
                        if (++told == 1) heard.Notify();
                      },
                      {.interval = absl::Milliseconds(1), .patience = absl::Milliseconds(50)});
    while (executable.looks < 3) absl::SleepFor(absl::Milliseconds(1));
    const absl::Time begin = absl::Now();
    executable.silent = true;
    EXPECT_TRUE(heard.WaitForNotificationWithTimeout(absl::Seconds(10)));
    EXPECT_GE(absl::Now() - begin, absl::Milliseconds(50));
    executable.failed = true;  // is told of no more
    executable.answers.Notify();
  }
  EXPECT_EQ(told, 1);
  EXPECT_THAT(what, StatusIs(absl::StatusCode::kUnavailable,
                             "step 7: 2 sequences of 2 rows, or one before: the device's driver "
                             "has not answered for 50ms"));
}

// Nobody waits for ever for a watch that ends.
TEST(DeviceWatchTest, TellsOfADriverThatDoesNotAnswerWhileItEnds) {
  Failing executable;
  executable.silent = true;
  absl::Notification heard;
  std::optional<DeviceWatch> watch;
  watch.emplace(
      &executable, [&](const absl::Status&) { heard.Notify(); },
      DeviceWatchOptions{.interval = absl::Milliseconds(1), .patience = absl::Milliseconds(200)});
  while (executable.looks < 1) absl::SleepFor(absl::Milliseconds(1));
  std::thread end([&] { watch.reset(); });
  EXPECT_TRUE(heard.WaitForNotificationWithTimeout(absl::Seconds(10)));
  executable.answers.Notify();
  end.join();
}

// Its calls may never return once a kernel has failed.
TEST(DeviceWatchTest, ADeviceThatHasFailedIsAskedNothingMore) {
  Failing executable;
  executable.failed = true;
  comm::OperationTracker tracker;
  const auto device = std::make_shared<Looks>();
  tracker.AddGroup("tp", {0, 1}, 0)->set_device(device);
  absl::Notification heard;
  DeviceWatch watch(&executable, [&](const absl::Status&) { heard.Notify(); },
                    {.tracker = &tracker, .interval = absl::Milliseconds(1)});
  EXPECT_TRUE(heard.WaitForNotificationWithTimeout(absl::Seconds(10)));
  EXPECT_EQ(device->looks, 0);
}

TEST(DeviceWatchTest, AsksHowFarTheDevicesCallsAre) {
  Failing executable;
  comm::OperationTracker tracker;
  const auto device = std::make_shared<Looks>();
  tracker.AddGroup("tp", {0, 1}, 0)->set_device(device);
  DeviceWatch watch(&executable, [](const absl::Status&) { FAIL(); },
                    {.tracker = &tracker, .interval = absl::Milliseconds(1)});
  const absl::Time deadline = absl::Now() + absl::Seconds(10);
  while (device->looks < 3 && absl::Now() < deadline) absl::SleepFor(absl::Milliseconds(1));
  EXPECT_GE(device->looks, 3);
}

TEST(DeviceWatchTest, EndsWithoutOne) {
  Failing executable;
  const absl::Time begin = absl::Now();
  {
    DeviceWatch watch(&executable, [](const absl::Status&) { FAIL(); },
                      {.interval = absl::Hours(1)});
  }
  EXPECT_LT(absl::Now() - begin, absl::Seconds(10));
}

}  // namespace
}  // namespace skein::worker
