// Writes lines to a file descriptor that may be slow, full or broken, without waiting for it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/time/time.h"

namespace skein {

// Writes on a thread of its own, and only that thread may block. Drops and counts whole lines when
// the thread is behind by more than the queue holds, or when writing fails (a full disk, a reader
// that is gone). As soon as lines get through again, one of them tells how many were dropped.
// SIGPIPE must be ignored. Any thread may call it.
class LineWriter {
 public:
  // `fd` stays the caller's, and must stay open for as long as the process lives.
  explicit LineWriter(int fd, size_t queue_bytes = kQueueBytes);
  // Where so many bytes go; -1: they are dropped. Called on the writing thread, before each line.
  using Target = std::function<int(size_t bytes)>;
  explicit LineWriter(Target target, size_t queue_bytes = kQueueBytes);
  ~LineWriter();  // Close() with a short patience, if it was not called
  LineWriter(const LineWriter&) = delete;

  // Queues `line`, which has no newline at its end. Never blocks.
  void Write(std::string line);

  // Waits until all lines are written or dropped, for at most `patience`.
  void Flush(absl::Duration patience);
  // Waits until all lines are written, for at most `patience`. A writing thread that is still stuck
  // then is left to itself, and later lines are dropped. Returns the number of lines dropped so
  // far, those still in the queue included.
  int64_t Close(absl::Duration patience);

 private:
  static constexpr size_t kQueueBytes = size_t{1} << 20;  // some 10,000 lines

  struct Shared;
  static void WriteAll(const std::shared_ptr<Shared>& shared);

  const std::shared_ptr<Shared> shared_;  // with the thread, which may outlive this
};

}  // namespace skein
