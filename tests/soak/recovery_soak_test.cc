// 64 streams over two jobs that scripts/launch.sh keeps up, of which a rank is killed or stopped
// every three seconds, whoever is back by then: every stream ends exactly once, with the text of an
// undisturbed run.
//   recovery_soak_test [--kills=N] [--stops=N]    (default 2 and 1; scripts/soak.sh: 10 and 2)
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gtest/gtest.h"
#include "tests/cluster/cluster.h"
#include "tests/cluster/process.h"
#include "tests/soak/lone_answers.h"

namespace skein::testing {
namespace {

constexpr int kStreams = 64;
constexpr int kJobs = 2;
constexpr int kRanks = 2;
constexpr absl::Duration kBetweenFaults = absl::Seconds(3);
constexpr absl::Duration kNamed = absl::Seconds(5);  // after its fault

int g_kills = 2;
int g_stops = 1;

// Keeps the jobs up; ends them, and what the script has made, with itself.
class Launcher {
 public:
  explicit Launcher(const Cluster& cluster)
      : process_({.name = "launch",
                  // It cleans up where the test dies, too.
                  .argv = {"setpriv", "--pdeathsig", "TERM", "scripts/launch.sh", "--jobs",
                           absl::StrCat(kJobs), "--ranks", absl::StrCat(kRanks), "--coordinator",
                           cluster.address(), "--bin", ".", "--first-wait", "0.2", "--longest-wait",
                           "0.2"},
                  .environment = {{"TMPDIR", "/tmp"}, {"HOME", cluster.scratch()}}}) {}
  ~Launcher() {
    process_.Signal(SIGTERM);
    EXPECT_TRUE(process_.Wait(absl::Seconds(30)).has_value());
  }

 private:
  Process process_;
};

// Picks at random where faults hit: of the ranks that live, each job once, since a job that was hit
// is over or will be. Sees each named in time, the last one before this ends.
class Victims {
 public:
  explicit Victims(Cluster& cluster) : cluster_(cluster) {}

  // Signals one, once there is one.
  void Hit(int signal) {
    cluster::v1::RankStatus victim;
    std::string job_id;
    ASSERT_TRUE(cluster_.WaitForStatus(
        [&](const cluster::v1::ClusterStatus& status) {
          std::vector<std::pair<std::string, cluster::v1::RankStatus>> ranks;
          for (const auto& job : status.jobs()) {
            if (job.state() == "lost" || job.state() == "ended" || hit_.contains(job.job_id())) {
              continue;
            }
            for (const auto& rank : job.ranks()) ranks.emplace_back(job.job_id(), rank);
          }
          if (ranks.empty()) return false;
          std::tie(job_id, victim) = ranks[random_() % ranks.size()];
          return true;
        },
        absl::Seconds(30)));
    hit_.insert(job_id);
    ASSERT_EQ(kill(victim.pid(), signal), 0);
    // It, and no other rank, is said to be the one that its job was lost by.
    named_.emplace_back(
        [this, fault = absl::Now(), signal,
         text = absl::StrCat("job ", job_id, ": lost: rank ", victim.rank(), " on ", victim.host(),
                             " (pid ", victim.pid(), ") is lost: ")] {
          EXPECT_TRUE(cluster_.coordinator().WaitForOutput(text, fault + kNamed - absl::Now()))
              << "after signal " << signal << " nobody said '" << text << "'";
        });
  }

 private:
  Cluster& cluster_;
  std::mt19937 random_{3};
  std::set<std::string> hit_;        // jobs' ids
  std::vector<std::jthread> named_;  // join as they end
};

TEST(RecoverySoakTest, NoStreamNoticesThatRanksDie) {
  const std::vector<LoneAnswer> lone = MakeLoneAnswers(kStreams, 60, 160);
  Cluster cluster({.layout = "tp=2,pp=1", .coordinator_flags = {"--max-num-seqs=64"}});
  const Launcher launcher(cluster);
  ASSERT_TRUE(cluster.WaitForServing(kJobs));

  std::atomic<bool> stop = false;
  std::atomic<int> ended = 0;
  std::vector<std::thread> streams;
  for (const LoneAnswer& one : lone) {
    streams.emplace_back([&] {
      while (!stop && !::testing::Test::HasFailure()) {
        one.ExpectEqual(cluster.Generate(one.request));
        ++ended;
      }
    });
  }

  std::vector<int> faults(g_kills, SIGKILL);
  faults.insert(faults.end(), g_stops, SIGSTOP);
  std::shuffle(faults.begin(), faults.end(), std::mt19937(1));
  {
    Victims victims(cluster);
    absl::Time next = absl::Now();
    for (const int fault : faults) {
      next += kBetweenFaults;
      absl::SleepFor(next - absl::Now());
      victims.Hit(fault);
      if (::testing::Test::HasFailure()) break;
    }
  }
  stop = true;
  for (std::thread& stream : streams) stream.join();
  const int64_t migrations = cluster.Status().migrations();
  // A fault takes about half of the streams with it, or all, or none where it hits a job that
  // loads.
  EXPECT_GE(migrations, g_kills >= 10 ? 100 : 20);
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
