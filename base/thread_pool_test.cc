#include "base/thread_pool.h"

#include <sched.h>

#include <atomic>
#include <ctime>
#include <memory>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/test_util.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace skein {
namespace {

TEST(ThreadPoolTest, RunsEveryTaskOnce) {
  for (int threads : {1, 2, 3, 8}) {
    SKEIN_ASSERT_OK_AND_ASSIGN(auto pool, ThreadPool::Create(threads));
    ASSERT_EQ(pool->threads(), threads);
    for (int repeat = 0; repeat < 500; ++repeat) {
      for (int64_t tasks : {0, 1, 2, 3, 17, 100}) {
        std::vector<int> runs(tasks, 0);  // plain, so that tsan sees a missing order
        std::atomic<int> strange_threads{0};
        pool->ForEach(tasks, [&](int64_t task, int thread) {
          ++runs[task];
          if (thread < 0 || thread >= threads) ++strange_threads;
        });
        ASSERT_EQ(runs, std::vector<int>(tasks, 1));
        ASSERT_EQ(strange_threads, 0);
      }
    }
  }
}

TEST(ThreadPoolTest, ThreadsShareTheWork) {
  SKEIN_ASSERT_OK_AND_ASSIGN(auto pool, ThreadPool::Create(3));
  // Each task waits for the two others: only three threads at once can finish.
  std::atomic<int> arrived{0};
  pool->ForEach(3, [&](int64_t, int) {
    ++arrived;
    while (arrived < 3) absl::SleepFor(absl::Milliseconds(1));
  });
  EXPECT_EQ(arrived, 3);
}

TEST(ThreadPoolTest, TheTasksOfAThreadThatIsHeldUpAreTakenByOthers) {
  SKEIN_ASSERT_OK_AND_ASSIGN(auto pool, ThreadPool::Create(2));
  constexpr int64_t kTasks = 10;
  // The first task, and with it its thread, waits for all others, also those of its own share.
  std::atomic<int64_t> others{0};
  pool->ForEach(kTasks, [&](int64_t task, int) {
    if (task > 0) {
      ++others;
      return;
    }
    const absl::Time deadline = absl::Now() + absl::Seconds(10);
    while (others < kTasks - 1 && absl::Now() < deadline) absl::SleepFor(absl::Milliseconds(1));
    EXPECT_EQ(others, kTasks - 1);
  });
}

std::vector<int> AllowedCpus() {
  cpu_set_t set;
  EXPECT_EQ(sched_getaffinity(0, sizeof(set), &set), 0);
  std::vector<int> cpus;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &set)) cpus.push_back(cpu);
  }
  return cpus;
}

void AllowCpus(const std::vector<int>& cpus) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int cpu : cpus) CPU_SET(cpu, &set);
  ASSERT_EQ(sched_setaffinity(0, sizeof(set), &set), 0);
}

TEST(ThreadPoolTest, EachThreadHasACoreOrNoneHas) {
  EXPECT_THAT(ThreadPool::Create(2, {{0}}),
              StatusIs(absl::StatusCode::kInvalidArgument, testing::_));
}

TEST(ThreadPoolTest, ThreadsKeepToTheirCores) {
  const std::vector<int> cpus = AllowedCpus();
  if (cpus.size() < 2) GTEST_SKIP() << "there is one processor";
  SKEIN_ASSERT_OK_AND_ASSIGN(auto pool, ThreadPool::Create(2, {{cpus[1]}, {cpus[0]}}));
  int came_back = 0;
  constexpr int kTries = 20;
  for (int i = 0; i < kTries; ++i) {
    // The caller is on the other thread's core.
    AllowCpus({cpus[0]});
    AllowCpus(cpus);
    absl::SleepFor(absl::Milliseconds(40));  // that thread sleeps
    std::vector<int> allowed;
    int began_on = -1;
    std::atomic<int> arrived{0};
    pool->ForEach(2, [&](int64_t, int thread) {
      if (thread == 0) began_on = sched_getcpu();
      if (thread == 1) allowed = AllowedCpus();
      ++arrived;
      while (arrived < 2) sched_yield();
    });
    EXPECT_EQ(allowed, std::vector<int>{cpus[0]});
    EXPECT_EQ(AllowedCpus(), cpus);
    if (began_on == cpus[1]) ++came_back;
  }
  // Others may have had its core, by turns.
  EXPECT_GT(came_back, kTries / 2);
}

TEST(ThreadPoolTest, IdleThreadsSleep) {
  SKEIN_ASSERT_OK_AND_ASSIGN(auto pool, ThreadPool::Create(4));
  for (int i = 0; i < 10; ++i) pool->ForEach(10, [](int64_t, int) {});
  const auto cpu_seconds = [] {
    timespec time;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
  };
  // Threads spin for a while first.
  const absl::Time deadline = absl::Now() + absl::Seconds(10);
  double used = 0;
  do {
    const double before = cpu_seconds();
    absl::SleepFor(absl::Milliseconds(300));
    used = cpu_seconds() - before;
  } while (used >= 0.01 && absl::Now() < deadline);
  EXPECT_LT(used, 0.01);
}

}  // namespace
}  // namespace skein
