// 64 streams over two jobs of which ranks are killed and stopped again and again: every stream ends
// exactly once, with the text of an undisturbed run.
//   recovery_soak_test [--kills=N] [--stops=N]    (default 2 and 1; scripts/soak.sh: 10 and 2)
#include <signal.h>

#include <atomic>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/cluster/cluster.h"
#include "tests/soak/lone_answers.h"

namespace skein::testing {
namespace {

constexpr int kStreams = 64;
constexpr int kJobs = 2;
constexpr int kRanks = 2;
constexpr absl::Duration kBetweenFaults = absl::Seconds(3);

int g_kills = 2;
int g_stops = 1;

// The rank that a fault hits, by job, as the coordinator knows it.
struct Victim {
  std::string job_id;
  cluster::v1::RankStatus rank;
};

Victim PickVictim(Cluster& cluster, std::mt19937& random) {
  const cluster::v1::ClusterStatus status = cluster.Status();
  std::vector<Victim> ranks;
  for (const auto& job : status.jobs()) {
    if (job.state() != "serving") continue;
    for (const auto& rank : job.ranks()) ranks.push_back({job.job_id(), rank});
  }
  return ranks.empty() ? Victim{} : ranks[random() % ranks.size()];
}

bool IsOver(const cluster::v1::ClusterStatus& status, const std::string& job_id,
            std::string* detail) {
  for (const auto& job : status.jobs()) {
    if (job.job_id() != job_id || job.state() == "serving") continue;
    *detail = job.detail();
    return true;
  }
  return false;
}

TEST(RecoverySoakTest, NoStreamNoticesThatRanksDie) {
  const std::vector<LoneAnswer> lone = MakeLoneAnswers(kStreams, 60, 160);
  Cluster cluster({.layout = "tp=2,pp=1", .coordinator_flags = {"--max-sequences=64"}});
  for (int i = 0; i < kJobs; ++i) cluster.StartJob(kRanks);
  ASSERT_TRUE(cluster.WaitForServing(kJobs));

  std::atomic<bool> stop = false;
  std::atomic<int> ended = 0;
  std::vector<std::thread> streams;
  for (int i = 0; i < kStreams; ++i) {
    streams.emplace_back([&, i] {
      while (!stop) {
        const Answer answer = cluster.Generate(lone[i].request);
        EXPECT_TRUE(answer.status.ok()) << answer.status.error_message();
        EXPECT_EQ(answer.tokens, lone[i].tokens);
        EXPECT_EQ(answer.text, lone[i].text);
        ++ended;
        if (!answer.status.ok()) return;
      }
    });
  }

  std::mt19937 random(3);
  for (int fault = 0; fault < g_kills + g_stops; ++fault) {
    absl::SleepFor(kBetweenFaults);
    const bool stops = fault % (g_kills + g_stops) >= g_kills;
    const Victim victim = PickVictim(cluster, random);
    ASSERT_FALSE(victim.job_id.empty());
    ASSERT_EQ(kill(victim.rank.pid(), stops ? SIGSTOP : SIGKILL), 0);
    std::string detail;
    EXPECT_TRUE(cluster.WaitForStatus(
        [&](const auto& status) { return IsOver(status, victim.job_id, &detail); },
        absl::Seconds(5)));
    EXPECT_THAT(detail, ::testing::HasSubstr(absl::StrCat("rank ", victim.rank.rank())));
    // The next fault comes when there is another job to go on with.
    cluster.StartJob(kRanks);
    ASSERT_TRUE(cluster.WaitForServing(kJobs));
  }
  stop = true;
  for (std::thread& stream : streams) stream.join();
  const int64_t migrations = cluster.Status().migrations();
  // Each fault takes about half of the streams with it.
  EXPECT_GE(migrations, 10 * (g_kills + g_stops));
  if (g_kills >= 10) {
    EXPECT_GE(migrations, 100);
  }
  std::printf("%d kills, %d stops: %d answers, %ld migrations\n", g_kills, g_stops, ended.load(),
              static_cast<long>(migrations));
}

}  // namespace
}  // namespace skein::testing

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    const bool known = (argument.starts_with("--kills=") &&
                        absl::SimpleAtoi(argument.substr(8), &skein::testing::g_kills)) ||
                       (argument.starts_with("--stops=") &&
                        absl::SimpleAtoi(argument.substr(8), &skein::testing::g_stops));
    if (!known) {
      std::fprintf(stderr, "unknown argument '%s'; there are --kills=N and --stops=N\n", argv[i]);
      return 2;
    }
  }
  return RUN_ALL_TESTS();
}
