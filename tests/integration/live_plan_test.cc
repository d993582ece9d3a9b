// The machines of a cluster that serves, and layouts for them.
#include <signal.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/cluster/cluster.h"
#include "tests/cluster/process.h"
#include "tests/cluster/running_answer.h"

namespace skein::testing {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;

struct Outcome {
  int status;
  std::string output;
};

Outcome Skein(const Cluster& cluster, std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), FindProgram("client/skein"));
  arguments.push_back("--coordinator=" + cluster.address());
  Process process({.name = "skein", .argv = arguments});
  const int status = process.Wait(absl::Seconds(20)).value_or(-1);
  return {status, process.Output()};
}

TEST(LivePlanTest, LayoutsAreRankedForTheHostsOfTheClustersJobs) {
  Cluster cluster({.layout = "tp=2"});
  const std::vector<std::string> plan = {"plan", "--topology=live", "--model=checkpoints/bard"};
  const std::vector<std::string> bare = {"plan", "--model=checkpoints/bard"};
  const Outcome none = Skein(cluster, plan);
  EXPECT_EQ(none.status, 1);
  EXPECT_THAT(none.output, HasSubstr("no job is there"));
  EXPECT_THAT(Skein(cluster, bare).output, HasSubstr("no job is there"));
  cluster.StartJob(2);
  ASSERT_TRUE(cluster.WaitForServing(1));
  const Outcome ranked = Skein(cluster, plan);
  EXPECT_EQ(ranked.status, 0) << ranked.output;
  EXPECT_THAT(ranked.output, AllOf(HasSubstr("tp=2,pp=1,dp=1"), HasSubstr(HostName())));
  // Who names no machines plans for the cluster that is there.
  const Outcome taken = Skein(cluster, bare);
  EXPECT_EQ(taken.status, 0) << taken.output;
  EXPECT_THAT(taken.output,
              AllOf(HasSubstr("for the cluster at " + cluster.address()), EndsWith(ranked.output)));
  const std::string picture = ::testing::TempDir() + "/live.svg";
  EXPECT_EQ(Skein(cluster, {"topo", "live", "--svg=" + picture}).status, 0);
  EXPECT_THAT(ReadFileOrEmpty(picture),
              AllOf(HasSubstr(">rank 0<"), HasSubstr(">rank 1<"), Not(HasSubstr(">rank 2<"))));
  const Outcome shown = Skein(cluster, {"topo", "live"});
  EXPECT_EQ(shown.status, 0) << shown.output;
  EXPECT_THAT(shown.output,
              AllOf(HasSubstr(absl::StrCat(HostName(), ": ")), HasSubstr("a core reads")));
  const Outcome larger = Skein(cluster, {"plan", "--topology=live", "--model=checkpoints/bard",
                                         "--nodes=2", "--fabric=ethernet-10g"});
  EXPECT_EQ(larger.status, 0) << larger.output;
  EXPECT_THAT(larger.output, HasSubstr("2 hosts"));
  cluster.coordinator().Signal(SIGKILL);
  ASSERT_TRUE(cluster.coordinator().Wait(absl::Seconds(5)).has_value());
  const Outcome gone = Skein(cluster, plan);
  EXPECT_EQ(gone.status, 1);
  EXPECT_THAT(gone.output, AllOf(HasSubstr(cluster.address()), Not(HasSubstr("tp=2"))));
}

}  // namespace
}  // namespace skein::testing
