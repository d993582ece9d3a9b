#include "supervisor/line_writer.h"

#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <deque>
#include <string_view>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/mutex.h"

namespace skein::supervisor {

struct LineWriter::Shared {
  Shared(int fd, size_t queue_bytes) : fd(fd), queue_bytes(queue_bytes) {}

  const int fd;
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
    : shared_(std::make_shared<Shared>(fd, queue_bytes)) {
  std::thread(WriteAll, shared_).detach();
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

int64_t LineWriter::Close(absl::Duration patience) {
  const auto deadline = std::chrono::steady_clock::now() + absl::ToChronoMilliseconds(patience);
  MutexLock lock(&shared_->mutex);
  shared_->closing = true;
  shared_->changed.NotifyAll();
  while (!shared_->queue.empty() || shared_->writing) {
    if (!shared_->changed.WaitUntil(&shared_->mutex, deadline)) break;
  }
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
    const bool written = WriteFully(shared->fd, text, &broken);
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

}  // namespace skein::supervisor
