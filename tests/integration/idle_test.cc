// A job that serves nothing leaves the cores to others.
#include <unistd.h>

#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "tests/cluster/cluster.h"

namespace skein::testing {
namespace {

// User and system time of a process.
absl::Duration CpuTime(pid_t pid) {
  std::ifstream file(absl::StrCat("/proc/", pid, "/stat"));
  std::string skipped;
  std::getline(file, skipped, ')');  // the name may hold spaces
  long long user = -1, system = 0;
  for (int field = 3; field < 14; ++field) file >> skipped;
  file >> user >> system;
  EXPECT_GE(user, 0);
  return absl::Seconds(user + system) / static_cast<double>(sysconf(_SC_CLK_TCK));
}

TEST(IdleTest, RanksUseUnderTwoPercentOfACore) {
  Cluster cluster({.layout = "tp=2,pp=2"});
  cluster.StartJob(4);
  ASSERT_TRUE(cluster.WaitForServing(1));
  ASSERT_TRUE(cluster.Generate(GreedyRequest("ROMEO:", 20)).status.ok());
  std::vector<pid_t> pids = {cluster.coordinator().pid()};
  const cluster::v1::JobStatus job = cluster.ServingJob(0);
  for (const auto& rank : job.ranks()) pids.push_back(rank.pid());

  std::vector<absl::Duration> before;
  for (pid_t pid : pids) before.push_back(CpuTime(pid));
  const absl::Duration watched = absl::Seconds(4);
  absl::SleepFor(watched);
  for (size_t i = 0; i < pids.size(); ++i) {
    EXPECT_LT(CpuTime(pids[i]) - before[i], 0.02 * watched)
        << (i == 0 ? "the coordinator" : absl::StrCat("rank ", i - 1));
  }
}

}  // namespace
}  // namespace skein::testing
