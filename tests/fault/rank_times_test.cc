// A rank that is slow shows in what all ranks tell of their time: it computes, and those that wait
// for it have bubbles. Real processes.
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/cluster/cluster.h"
#include "tests/fault/faults.h"

namespace skein::testing {
namespace {

using ::testing::ContainsRegex;

constexpr int kTokens = 60;
constexpr double kSlowSeconds = kTokens * 0.02;  // of the slow rank, in all, at least

struct Times {
  double compute = 0, transfer = 0, bubble = 0, waiting = 0;

  double Sum() const { return compute + transfer + bubble + waiting; }
  double Busy() const { return compute + transfer + bubble; }
  Times operator-(const Times& of) const {
    return {compute - of.compute, transfer - of.transfer, bubble - of.bubble, waiting - of.waiting};
  }
};

class RankTimesTest : public ::testing::Test {
 protected:
  // As the ranks' next heartbeats tell them.
  static std::map<int, Times> Read(Cluster& cluster) {
    absl::SleepFor(absl::Milliseconds(700));
    std::map<int, Times> times;
    const cluster::v1::JobStatus job = cluster.ServingJob(0);
    for (const auto& rank : job.ranks()) {
      const auto& of = rank.times();
      times[rank.rank()] = {of.compute_seconds(), of.transfer_seconds(), of.bubble_seconds(),
                            of.waiting_seconds()};
    }
    return times;
  }

  // What an answer took of each rank, of a job in which one is slow.
  std::map<int, Times> Answer(const std::string& layout, int slow_rank) {
    Cluster cluster({.layout = layout, .worker = kFaultyWorker});
    cluster.StartJob(2, {kSlow, absl::StrCat("--slow-rank=", slow_rank)});
    EXPECT_TRUE(cluster.WaitForServing(1));
    const std::map<int, Times> before = Read(cluster);
    EXPECT_TRUE(cluster.Generate(GreedyRequest("ROMEO:", kTokens)).status.ok());
    std::map<int, Times> took = Read(cluster);
    for (auto& [rank, times] : took) times = times - before.at(rank);
    return took;
  }

  static void ExpectSlow(const Times& slow, const Times& other) {
    EXPECT_GT(slow.compute, 0.9 * kSlowSeconds);
    EXPECT_GT(slow.compute / slow.Busy(), 0.6);
    EXPECT_GT(other.bubble, 0.8 * kSlowSeconds);
    EXPECT_GT(other.bubble / other.Busy(), 0.6);
  }
};

TEST_F(RankTimesTest, AShardWaitsForASlowOne) {
  const std::map<int, Times> took = Answer("tp=2", /*slow_rank=*/1);
  ExpectSlow(took.at(1), took.at(0));
}

TEST_F(RankTimesTest, AStageWaitsForASlowOneBehindIt) {
  const std::map<int, Times> took = Answer("pp=2", /*slow_rank=*/1);
  ExpectSlow(took.at(1), took.at(0));
}

TEST_F(RankTimesTest, AStageWaitsForASlowOneBeforeIt) {
  const std::map<int, Times> took = Answer("pp=2", /*slow_rank=*/0);
  ExpectSlow(took.at(0), took.at(1));
}

TEST_F(RankTimesTest, WithoutRequestsAllWaitAndAllTimeIsTold) {
  Cluster cluster({.layout = "tp=2", .worker = kFaultyWorker});
  cluster.StartJob(2);
  ASSERT_TRUE(cluster.WaitForServing(1));
  ASSERT_TRUE(cluster.Generate(GreedyRequest("ROMEO:", 8)).status.ok());
  const std::map<int, Times> before = Read(cluster);
  const absl::Time begin = absl::Now();
  absl::SleepFor(absl::Seconds(3));
  const std::map<int, Times> after = Read(cluster);
  const double passed = absl::ToDoubleSeconds(absl::Now() - begin);
  for (const auto& [rank, times] : after) {
    const Times took = times - before.at(rank);
    EXPECT_GT(took.waiting / took.Sum(), 0.99) << rank;
    EXPECT_NEAR(took.Sum(), passed, 0.8) << rank;  // a heartbeat and a half
    EXPECT_GT(times.compute, 0) << rank;
    EXPECT_GT(times.bubble + times.transfer, 0) << rank;
  }
  Process status({.name = "status",
                  .argv = {FindProgram("client/skein"), "status",
                           absl::StrCat("--coordinator=", cluster.address())}});
  ASSERT_TRUE(status.Wait(absl::Seconds(10)).has_value());
  EXPECT_THAT(status.Output(),
              ContainsRegex("ready .* s ago +[0-9]+% compute, [0-9]+% transfer, [0-9]+% "
                            "bubble, [0-9]+% wait"));
}

}  // namespace
}  // namespace skein::testing
