#include "kernels/cpu/thread_pool.h"

#include <system_error>

#include "absl/strings/str_cat.h"
#include "base/status_util.h"

namespace skein::kernels {
namespace {

constexpr uint64_t kTasksMask = 0xFFFFFFFF;
constexpr int kSpins = 500;  // some 20 us of pauses

void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

// Returns once `atomic` differs from `value`: soon by spinning, later by sleeping.
template <typename T>
void AwaitChange(const std::atomic<T>& atomic, T value) {
  for (int i = 0; i < kSpins; ++i) {
    if (atomic.load(std::memory_order_acquire) != value) return;
    Pause();
  }
  atomic.wait(value, std::memory_order_acquire);
}

}  // namespace

absl::StatusOr<std::unique_ptr<ThreadPool>> ThreadPool::Create(int threads) {
  std::unique_ptr<ThreadPool> pool(new ThreadPool);
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
  open_.fetch_add(kTasksMask + 1);  // a job without tasks
  open_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::Run(int64_t tasks, Call call, const void* fn) {
  tasks_ = tasks;
  call_ = call;
  fn_ = fn;
  done_.store(0, std::memory_order_relaxed);
  const uint64_t job = (open_.load(std::memory_order_relaxed) >> 32) + 1;
  open_.store(job << 32 | static_cast<uint64_t>(tasks), std::memory_order_release);
  open_.notify_all();
  TakeTasks(0);
  int64_t done = done_.load(std::memory_order_acquire);
  while (done < tasks) {
    AwaitChange(done_, done);
    done = done_.load(std::memory_order_acquire);
  }
}

void ThreadPool::TakeTasks(int thread) {
  uint64_t open = open_.load(std::memory_order_acquire);
  while ((open & kTasksMask) > 0) {
    if (!open_.compare_exchange_weak(open, open - 1, std::memory_order_acq_rel,
                                     std::memory_order_acquire)) {
      continue;
    }
    // Ascending order, so that threads stream through memory forwards.
    const int64_t tasks = tasks_;
    call_(fn_, tasks - static_cast<int64_t>(open & kTasksMask), thread);
    if (done_.fetch_add(1, std::memory_order_acq_rel) + 1 == tasks) done_.notify_one();
    open = open_.load(std::memory_order_acquire);
  }
}

void ThreadPool::Work(int thread) {
  while (!stop_.load(std::memory_order_acquire)) {
    TakeTasks(thread);
    const uint64_t open = open_.load(std::memory_order_acquire);
    if ((open & kTasksMask) == 0 && !stop_.load(std::memory_order_acquire)) {
      AwaitChange(open_, open);
    }
  }
}

}  // namespace skein::kernels
