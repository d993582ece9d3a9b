#include "base/thread_pool.h"

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <system_error>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status_util.h"
#include "base/thread_name.h"

namespace skein {
namespace {

constexpr int kSpins = 500;  // some 20 us of pauses
constexpr std::chrono::microseconds kYields{200};
// Between two times that the caller is brought to its core. Where somebody else has that core, the
// caller waits for it, and the scheduler moves it away again: twice as long from time to time.
constexpr std::chrono::milliseconds kShortestStay{1};
constexpr std::chrono::milliseconds kLongestStay{32};

void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

// Returns once `atomic` differs from `value`: soon by spinning, then by yielding, later by
// sleeping.
template <typename T>
void AwaitChange(const std::atomic<T>& atomic, T value) {
  for (int i = 0; i < kSpins; ++i) {
    if (atomic.load(std::memory_order_acquire) != value) return;
    Pause();
  }
  const auto end = std::chrono::steady_clock::now() + kYields;
  do {
    sched_yield();
    if (atomic.load(std::memory_order_acquire) != value) return;
  } while (std::chrono::steady_clock::now() < end);
  atomic.wait(value, std::memory_order_acquire);
}

cpu_set_t MaskOf(const std::vector<int>& cpus) {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  for (const int cpu : cpus) CPU_SET(cpu, &mask);
  return mask;
}

}  // namespace

absl::StatusOr<std::unique_ptr<ThreadPool>> ThreadPool::Create(int threads, const Cores& cores) {
  if (!cores.empty() && cores.size() != static_cast<size_t>(threads)) {
    return absl::InvalidArgumentError(
        absl::StrCat("cores for ", cores.size(), " threads, not ", threads));
  }
  std::unique_ptr<ThreadPool> pool(new ThreadPool(threads, cores));
  try {
    for (int i = 1; i < threads; ++i) {
      pool->workers_.emplace_back([pool = pool.get(), i] { pool->Work(i); });
    }
  } catch (const std::system_error& error) {
    return ErrnoStatus(error.code().value(),
                       absl::StrCat("cannot start thread ", pool->workers_.size() + 1, " of ",
                                    threads - 1, " for computing"));
  }
  return pool;
}

ThreadPool::~ThreadPool() {
  stop_.store(true);
  job_.fetch_add(1);
  job_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::BringCaller() {
  const std::vector<int>& cpus = cores_.front();
  if (std::find(cpus.begin(), cpus.end(), sched_getcpu()) != cpus.end()) return;
  const auto now = std::chrono::steady_clock::now();
  cpu_set_t before;
  if (now < brought_ + stays_) return;
  const bool stayed = now > brought_ + 10 * kLongestStay;
  stays_ = stayed ? kShortestStay : std::min(2 * stays_, kLongestStay);
  brought_ = now;
  if (sched_getaffinity(0, sizeof(before), &before) != 0) return;
  const cpu_set_t there = MaskOf(cpus);
  sched_setaffinity(0, sizeof(there), &there);
  sched_setaffinity(0, sizeof(before), &before);
}

void ThreadPool::Run(int64_t tasks, Call call, const void* fn) {
  tasks_ = tasks;
  call_ = call;
  fn_ = fn;
  done_.store(0, std::memory_order_relaxed);
  const uint32_t job = job_.load(std::memory_order_relaxed) + 1;
  for (int share = 0; share < threads(); ++share) {
    const int64_t count = EndOfShare(share) - EndOfShare(share - 1);
    shares_[share].open.store(uint64_t{job} << 32 | static_cast<uint64_t>(count),
                              std::memory_order_release);
  }
  job_.store(job, std::memory_order_release);
  job_.notify_all();
  if (!cores_.empty()) BringCaller();  // others begin meanwhile
  TakeTasks(0);
  int64_t done = done_.load(std::memory_order_acquire);
  while (done < tasks) {
    AwaitChange(done_, done);
    done = done_.load(std::memory_order_acquire);
  }
}

void ThreadPool::TakeTasks(int thread) {
  for (int i = 0; i < threads(); ++i) TakeTasksOf((thread + i) % threads(), thread);
}

void ThreadPool::TakeTasksOf(int share, int thread) {
  std::atomic<uint64_t>& open = shares_[share].open;
  int64_t taken = 0;
  int64_t tasks = 0;
  uint64_t seen = open.load(std::memory_order_acquire);
  while (static_cast<uint32_t>(seen) > 0) {
    if (!open.compare_exchange_weak(seen, seen - 1, std::memory_order_acq_rel,
                                    std::memory_order_acquire)) {
      continue;
    }
    tasks = tasks_;
    ++taken;
    // Tasks go in ascending order, so that threads stream through memory forwards.
    call_(fn_, EndOfShare(share) - static_cast<uint32_t>(seen), thread);
    seen = open.load(std::memory_order_acquire);
  }
  // Tasks are counted together: others' writes of `done_` take longer than a short task. Until then
  // the job stays.
  if (taken > 0 && done_.fetch_add(taken, std::memory_order_acq_rel) + taken == tasks) {
    done_.notify_one();
  }
}

void ThreadPool::Work(int thread) {
  NameThisThread("pool");
  if (!cores_.empty()) {
    const cpu_set_t mine = MaskOf(cores_[thread]);
    sched_setaffinity(0, sizeof(mine), &mine);
  }
  uint32_t job = 0;
  while (!stop_.load(std::memory_order_acquire)) {
    AwaitChange(job_, job);
    job = job_.load(std::memory_order_acquire);
    TakeTasks(thread);
  }
}

}  // namespace skein
