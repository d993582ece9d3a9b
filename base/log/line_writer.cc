#include "base/log/line_writer.h"

#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <deque>
#include <string_view>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/mutex.h"

namespace skein {

struct LineWriter::Shared {
  Shared(Target target, size_t queue_bytes) : target(std::move(target)), queue_bytes(queue_bytes) {}

  void WaitUntilEmpty(absl::Duration patience) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    const auto deadline = std::chrono::steady_clock::now() + absl::ToChronoNanoseconds(patience);
    while ((!queue.empty() || writing) && changed.WaitUntil(&mutex, deadline)) {
    }
  }

  const Target target;
  const size_t queue_bytes;
  Mutex mutex;
  CondVar changed;
  std::deque<std::string> queue ABSL_GUARDED_BY(mutex);
  size_t queued_bytes ABSL_GUARDED_BY(mutex) = 0;
  int64_t dropped ABSL_GUARDED_BY(mutex) = 0;
  int64_t told ABSL_GUARDED_BY(mutex) = 0;  // of those that were dropped
  bool closing ABSL_GUARDED_BY(mutex) = false;
  bool writing ABSL_GUARDED_BY(mutex) = false;
};

namespace {

constexpr absl::Duration kShortPatience = absl::Seconds(1);

// All of it, or as much as goes before an error. Sets `*broken` where a line was begun and not
// ended.
bool WriteFully(int fd, std::string_view text, bool* broken) {
  while (!text.empty()) {
    const ssize_t written = write(fd, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0 && errno == EAGAIN) {  // someone else made it non-blocking
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
      continue;
    }
    if (written <= 0) return false;
    *broken = true;
    text.remove_prefix(written);
  }
  *broken = false;
  return true;
}

}  // namespace

LineWriter::LineWriter(int fd, size_t queue_bytes)
    : LineWriter([fd](size_t) { return fd; }, queue_bytes) {}

LineWriter::LineWriter(Target target, size_t queue_bytes)
    : shared_(std::make_shared<Shared>(std::move(target), queue_bytes)) {
  // Signals are for threads that expect them, whichever was started first.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread(WriteAll, shared_).detach();
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

LineWriter::~LineWriter() { Close(kShortPatience); }

void LineWriter::Write(std::string line) {
  line.push_back('\n');
  MutexLock lock(&shared_->mutex);
  if (shared_->closing || shared_->queued_bytes + line.size() > shared_->queue_bytes) {
    ++shared_->dropped;
    return;
  }
  shared_->queued_bytes += line.size();
  shared_->queue.push_back(std::move(line));
  shared_->changed.NotifyAll();
}

void LineWriter::Flush(absl::Duration patience) {
  MutexLock lock(&shared_->mutex);
  shared_->WaitUntilEmpty(patience);
}

int64_t LineWriter::Close(absl::Duration patience) {
  MutexLock lock(&shared_->mutex);
  shared_->closing = true;
  shared_->changed.NotifyAll();
  shared_->WaitUntilEmpty(patience);
  return shared_->dropped + static_cast<int64_t>(shared_->queue.size()) +
         (shared_->writing ? 1 : 0);
}

void LineWriter::WriteAll(const std::shared_ptr<Shared>& shared) {
  bool broken = false;
  MutexLock lock(&shared->mutex);
  while (true) {
    while (shared->queue.empty() && !shared->closing) shared->changed.Wait(&shared->mutex);
    if (shared->queue.empty()) return;
    std::string text = std::move(shared->queue.front());
    shared->queue.pop_front();
    shared->queued_bytes -= text.size();
    const int64_t dropped = shared->dropped;
    if (dropped > shared->told) {
      text = absl::StrCat("(", dropped - shared->told, " lines were dropped here)\n", text);
    }
    if (broken) text.insert(0, "\n");
    shared->writing = true;
    shared->mutex.Unlock();
    const bool written = WriteFully(shared->target(text.size()), text, &broken);
    shared->mutex.Lock();
    shared->writing = false;
    if (written) {
      shared->told = dropped;
    } else {
      ++shared->dropped;
    }
    shared->changed.NotifyAll();
  }
}

}  // namespace skein
