#include "worker/probe/device_lock.h"

#include <filesystem>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/test_util.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace skein::worker {
namespace {

class DeviceLockTest : public ::testing::Test {
 protected:
  static DeviceLock Open(const std::string& device = "cores") {
    const std::string folder = absl::StrCat(::testing::TempDir(), "/devices/", device);
    std::filesystem::create_directories(folder);
    return *DeviceLock::Open(folder);
  }
};

TEST_F(DeviceLockTest, NobodyMeasuresBesideWhoServes) {
  DeviceLock serving = Open();
  DeviceLock other = Open();
  EXPECT_TRUE(serving.Share(absl::ZeroDuration()));
  EXPECT_TRUE(other.Share(absl::ZeroDuration()));  // several serve
  DeviceLock measuring = Open();
  EXPECT_FALSE(measuring.TryOwn());
  EXPECT_TRUE(Open("another").TryOwn());
  {
    DeviceLock gone = std::move(serving);
  }
  EXPECT_FALSE(measuring.TryOwn());
  {
    DeviceLock gone = std::move(other);
  }
  EXPECT_TRUE(measuring.TryOwn());
}

TEST_F(DeviceLockTest, WhoServesWaitsForWhoMeasures) {
  DeviceLock measuring = Open();
  ASSERT_TRUE(measuring.TryOwn());
  EXPECT_FALSE(Open().TryOwn());
  DeviceLock serving = Open();
  const absl::Time begin = absl::Now();
  EXPECT_FALSE(serving.Share(absl::Milliseconds(200)));
  EXPECT_GE(absl::Now() - begin, absl::Milliseconds(100));
  // Who has measured goes on to serve.
  EXPECT_TRUE(measuring.Share(absl::ZeroDuration()));
  EXPECT_TRUE(serving.Share(absl::ZeroDuration()));
}

TEST_F(DeviceLockTest, LeavesNothing) {
  DeviceLock lock = Open("clean");
  EXPECT_TRUE(lock.TryOwn());
  EXPECT_TRUE(std::filesystem::is_empty(absl::StrCat(::testing::TempDir(), "/devices/clean")));
}

TEST_F(DeviceLockTest, ALockOfNothingIsNone) {
  DeviceLock none;
  EXPECT_FALSE(none.TryOwn());
  EXPECT_FALSE(none.Share(absl::ZeroDuration()));
  EXPECT_TRUE(DeviceLock::Open("/dev/shm").ok());  // which stands for cores
  EXPECT_THAT(std::string(DeviceLock::Open("/proc/nowhere").status().message()),
              ::testing::HasSubstr("/proc/nowhere"));
}

}  // namespace
}  // namespace skein::worker
