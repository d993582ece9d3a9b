// Shares out the tasks of one operation over threads.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"

namespace skein {

// `threads` threads, the caller among them, share the tasks. Each has an even share of neighbouring
// tasks, the same ones every time that there are as many tasks, so that what they work on stays in
// its caches. A thread that is through takes from the others, so that a thread that lost its core
// delays one task. An idle thread spins for some 20 us, the gap between two operations, then offers
// its core to others for 200 us, which an exchange between ranks takes, then sleeps in the kernel.
// Allocates nothing after Create.
class ThreadPool {
 public:
  // The processors of a core for each thread, or none: threads run where the scheduler has them,
  // which may leave two of them on one core for tens of milliseconds while another one idles.
  using Cores = std::vector<std::vector<int>>;

  // `threads` >= 1. Those that it starts are bound to their cores. The caller of ForEach has the
  // first one: now and then it is brought back there, and not bound, since threads that it starts
  // would be, too. Returns InvalidArgument for cores of fewer or more threads, the system's own
  // error when a thread cannot be started; where it cannot be bound, it runs on any core.
  static absl::StatusOr<std::unique_ptr<ThreadPool>> Create(int threads, const Cores& cores = {});
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const { return static_cast<int>(shares_.size()); }

  // Calls fn(task, thread) for every task in [0, tasks), with thread in [0, threads()), and returns
  // when all are done. One caller at a time; fn does not call ForEach. tasks < 2^32.
  template <typename Fn>
  void ForEach(int64_t tasks, const Fn& fn) {
    if (workers_.empty() || tasks <= 1) {
      for (int64_t task = 0; task < tasks; ++task) fn(task, 0);
      return;
    }
    Run(
        tasks,
        [](const void* f, int64_t task, int thread) { (*static_cast<const Fn*>(f))(task, thread); },
        &fn);
  }

 private:
  using Call = void (*)(const void* fn, int64_t task, int thread);

  // A thread's share has in one word the number of the job (upper half) and how many of the share's
  // tasks nobody took yet (lower half). So a thread that takes a task knows that the job below is
  // the task's and stays until it is done. Each share has a cache line of its own.
  struct alignas(64) Share {
    std::atomic<uint64_t> open{0};
  };

  ThreadPool(int threads, const Cores& cores) : cores_(cores), shares_(threads) {}
  void BringCaller();
  void Run(int64_t tasks, Call call, const void* fn);
  void Work(int thread);
  void TakeTasks(int thread);
  void TakeTasksOf(int share, int thread);
  int64_t EndOfShare(int share) const { return (share + 1) * tasks_ / threads(); }

  const Cores cores_;
  std::chrono::steady_clock::time_point brought_;  // the caller, last
  std::chrono::milliseconds stays_{0};             // so long at least, wherever it is
  std::vector<Share> shares_;                      // [threads]
  std::vector<std::thread> workers_;
  // All threads read the job. They write its end, which has a cache line of its own.
  std::atomic<uint32_t> job_{0};  // counts the jobs
  std::atomic<bool> stop_{false};
  int64_t tasks_ = 0;
  Call call_ = nullptr;
  const void* fn_ = nullptr;
  alignas(64) std::atomic<int64_t> done_{0};  // tasks of the job that are done
};

}  // namespace skein
