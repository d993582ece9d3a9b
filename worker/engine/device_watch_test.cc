#include "worker/engine/device_watch.h"

#include <atomic>

#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "base/test_util.h"
#include "gtest/gtest.h"
#include "kernels/testing/fake_executable.h"

namespace skein::worker {
namespace {

class Failing final : public kernels::FakeExecutable {
 public:
  absl::Status Health() const override {
    ++looks;
    return failed ? absl::InternalError("the GPU has failed") : absl::OkStatus();
  }
  View port(kernels::BufferId, int) override { return {}; }

  std::atomic<bool> failed = false;
  mutable std::atomic<int> looks = 0;

 private:
  absl::Status Run(int, const kernels::Batch&, kernels::BatchResult&) override {
    return absl::OkStatus();
  }
};

TEST(DeviceWatchTest, TellsAFailureOnce) {
  Failing executable;
  std::atomic<int> told = 0;
  absl::Status what;
  absl::Notification heard;
  {
    DeviceWatch watch(
        &executable,
        [&](const absl::Status& why) {
          what = why;
          if (++told == 1) heard.Notify();
        },
        absl::Milliseconds(1));
    while (executable.looks < 3) absl::SleepFor(absl::Milliseconds(1));
    EXPECT_EQ(told, 0);
    executable.failed = true;
    EXPECT_TRUE(heard.WaitForNotificationWithTimeout(absl::Seconds(10)));
    absl::SleepFor(absl::Milliseconds(20));
  }
  EXPECT_EQ(told, 1);
  EXPECT_THAT(what, StatusIs(absl::StatusCode::kInternal, "the GPU has failed"));
}

TEST(DeviceWatchTest, EndsWithoutOne) {
  Failing executable;
  const absl::Time begin = absl::Now();
  {
    DeviceWatch watch(&executable, [](const absl::Status&) { FAIL(); }, absl::Hours(1));
  }
  EXPECT_LT(absl::Now() - begin, absl::Seconds(10));
}

}  // namespace
}  // namespace skein::worker
