#include "topology/host/near_cpus.h"

#include <sched.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include "absl/synchronization/notification.h"
#include "base/test_util.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace skein::topology {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

TEST(CpusNearTest, AreThoseOfThePciDevice) {
  const std::string root = ::testing::TempDir() + "/root";
  const std::string folder = root + "/sys/bus/pci/devices/0000:9a:00.0";
  std::filesystem::create_directories(folder);
  std::ofstream(folder + "/local_cpulist") << "48-95\n";
  EXPECT_THAT(CpusNear("0000:9A:00.0", root), SizeIs(48));
  EXPECT_THAT(CpusNear("0000:9B:00.0", root), IsEmpty());
  EXPECT_THAT(CpusNear("", root), IsEmpty());
  EXPECT_THAT(CpusNear("../devices/0000:9a:00.0", root), IsEmpty());
}

TEST(ChooseBindingTest, KeepsToTheDevicesSideAndToWhatIsAllowed) {
  struct Case {
    const char* allowed;
    const char* near;
    const char* bound;
    const char* says;
    bool warns;
  };
  const Case cases[] = {
      {"0-15", "8-15", "8-15", "threads are bound to processors 8-15, near GPU 0", false},
      {"6-9", "8-15", "8-9", "threads are bound to processors 8-9, near GPU 0", false},
      {"0-3,8-11", "0-7,16-23", "0-3", "bound to processors 0-3", false},
      {"0-15", "0-15", "", "", false},
      {"8-11", "8-15", "", "", false},  // mpirun's, inside
      {"9", "8-15", "", "", false},
      {"0-3", "8-15", "", "bound to processors 0-3, all of them far from GPU 0, which is near 8-15",
       true},
      {"0-3", "", "", "nothing tells which processors are near GPU 0", false},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(std::string(c.allowed) + " near " + c.near);
    const Binding binding = ChooseBinding(ParseCpus(c.allowed), ParseCpus(c.near), "GPU 0");
    EXPECT_EQ(FormatCpus(binding.cpus), c.bound);
    EXPECT_THAT(binding.says, HasSubstr(c.says));
    EXPECT_EQ(binding.says.empty(), std::string(c.says).empty());
    EXPECT_EQ(binding.warns, c.warns);
  }
}

TEST(BindThreadsTest, BindsThoseThatAreThereAndThoseThatCome) {
  SKEIN_ASSERT_OK_AND_ASSIGN(const Cpus before, AllowedCpus());
  absl::Notification bound, seen, unbound;
  std::thread there([&] {
    bound.WaitForNotification();
    EXPECT_EQ(*AllowedCpus(), Cpus{before.back()});
    seen.Notify();
    unbound.WaitForNotification();
    EXPECT_EQ(*AllowedCpus(), before);
  });
  SKEIN_EXPECT_OK(BindThreads({before.back()}));
  std::thread([&] { EXPECT_EQ(*AllowedCpus(), Cpus{before.back()}); }).join();
  bound.Notify();
  seen.WaitForNotification();
  SKEIN_EXPECT_OK(UnbindThreads());
  // In a cgroup these are what it allows.
  SKEIN_ASSERT_OK_AND_ASSIGN(const Cpus all, AllowedCpus());
  EXPECT_GE(all.size(), before.size());
  SKEIN_EXPECT_OK(BindThreads(before));
  unbound.Notify();
  there.join();
}

}  // namespace
}  // namespace skein::topology
