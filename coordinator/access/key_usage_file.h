// Keeps what keys have used in an SQLite database, so that a restart does not forget it.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "coordinator/access/key_usage.h"
#include "coordinator/sqlite/database.h"

namespace skein::coordinator {

// A thread of its own writes what has changed twice a second, in one transaction; no request waits
// for the disk. A process that is killed loses the last second of its counts at most; a host that
// loses power may lose more, and never the database (WAL). A disk that is full is logged, and
// counts go on in memory.
class KeyUsageFile {
 public:
  // Opens the database, or makes it, restores what counts still, and begins to write. `usage`
  // outlives it. Unavailable: another process has it open; FailedPrecondition: it is no such
  // database.
  static absl::StatusOr<std::unique_ptr<KeyUsageFile>> Open(const std::string& path,
                                                            KeyUsage* usage);
  ~KeyUsageFile();  // writes what is left

  // Writes at once what has changed. Any thread.
  absl::Status Write();

 private:
  KeyUsageFile(std::string path, KeyUsage* usage);
  absl::Status Restore();
  absl::Status WriteTransaction();
  void Run();

  const std::string path_;
  KeyUsage* const usage_;
  Mutex writing_;
  std::optional<Database> database_;  // from Open on
  // What is not written yet.
  std::map<std::pair<std::string, int64_t>, SecondOfUse> pending_ ABSL_GUARDED_BY(writing_);

  Mutex mutex_;
  CondVar ends_;
  bool ending_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread writer_;
};

}  // namespace skein::coordinator
