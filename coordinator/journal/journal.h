// Answers on disk, so that a coordinator that was killed goes on with them: an SQLite database in a
// folder. Knows nothing of what an answer is: a head and records, in bytes.
//
// What has been told as kept survives the end of the process, however it ends: the system has it.
// When the host itself loses power, the last seconds may be missing, and never the database:
// `synchronous = NORMAL` waits for the disk when the log is folded into the database, not for each
// transaction.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/mutex.h"
#include "coordinator/sqlite/database.h"

namespace skein::coordinator {

// A thread of its own writes: all that piles up while a transaction is written is the next one, so
// that a step of many answers costs one. Callers never wait for the disk. Thread-safe.
class Journal {
 public:
  struct Options {
    std::string folder;  // made if it is missing, for its owner alone
    // The database takes no more; beyond it writing fails as on a full disk.
    int64_t max_bytes = int64_t{1} << 30;
  };

  // What an earlier process has left.
  struct Left {
    int64_t answer = 0;
    std::string head;                  // "": the database is broken here
    std::vector<std::string> records;  // from the first one on, none missing
  };

  // Called by the journal's thread, without its lock: everything up to here is kept; or, false, the
  // answer cannot be kept: nothing of it is written any more, and what is there will be removed.
  using OnWritten = std::function<void(bool kept)>;

  // Opens the database, or makes it. Unavailable: another process has it (which one is told);
  // FailedPrecondition: it is no such database, or of another version; or what the system says.
  static absl::StatusOr<std::unique_ptr<Journal>> Open(const Options& options);
  // Writes what is left.
  ~Journal();

  // In the order in which they began. Once.
  std::vector<Left> TakeLeft();
  // When the earlier process was alive for the last time, to a second; infinite past: there was
  // none.
  absl::Time last_alive() const { return last_alive_; }

  // Numbers rise from process to process. Append to it before any other call with the number.
  int64_t NextAnswer();
  // Adds to an answer. `head` is of its first call alone. A call's records are kept all or none.
  void Append(int64_t answer, std::string head, std::vector<std::string> records,
              OnWritten on_written);
  void Remove(int64_t answer);

  // False from a transaction that failed until one succeeds: whoever begins an answer now cannot
  // count on its being kept.
  bool healthy() const;
  // Returns when everything that was said before is written, or has failed. For tests.
  void Flush();

 private:
  struct Change {
    int64_t answer = 0;
    bool remove = false;
    std::string head;
    std::vector<std::string> records;
    OnWritten on_written;
  };
  class Lock;

  explicit Journal(std::string path);
  absl::Status ReadLeft();
  void Run();
  void Write(std::vector<Change>& changes);
  absl::Status WriteTransaction(const std::vector<Change>& changes);

  const std::string path_;
  std::unique_ptr<Lock> lock_;
  std::optional<Database> database_;  // its thread's, once that runs
  absl::Time last_alive_ = absl::InfinitePast();
  std::vector<Left> left_;

  // The thread's alone.
  class Statements;
  std::unique_ptr<Statements> statements_;
  std::map<int64_t, int64_t> next_record_;  // of each answer
  std::set<int64_t> lost_;                  // answers that cannot be kept, until they are removed
  std::set<int64_t> to_remove_;             // which failed

  mutable Mutex mutex_;
  CondVar changed_;
  std::vector<Change> queue_ ABSL_GUARDED_BY(mutex_);
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool healthy_ ABSL_GUARDED_BY(mutex_) = true;
  bool ending_ ABSL_GUARDED_BY(mutex_) = false;
  int64_t next_answer_ ABSL_GUARDED_BY(mutex_) = 1;
  std::thread writer_;
};

}  // namespace skein::coordinator
