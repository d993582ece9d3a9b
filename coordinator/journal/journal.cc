#include "coordinator/journal/journal.h"

#include <fcntl.h>
#include <sqlite3.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/file.h"
#include "base/status_macros.h"
#include "base/status_util.h"
#include "spdlog/spdlog.h"

namespace skein::coordinator {
namespace {

constexpr std::chrono::seconds kAlivePeriod(1);

// A record is some 40 bytes, and each answer that gets one dirties a page: small ones keep a step
// of many answers cheap.
constexpr int64_t kPageBytes = 1024;

// The log is folded into the database, which waits for the disk, once in 16 MiB of it. What is
// deleted is overwritten: these are prompts.
constexpr char kSettings[] =
    "PRAGMA page_size = 1024; PRAGMA locking_mode = EXCLUSIVE; PRAGMA journal_mode = WAL;"
    "PRAGMA synchronous = NORMAL; PRAGMA wal_autocheckpoint = 16384; PRAGMA secure_delete = ON;"
    "BEGIN IMMEDIATE; COMMIT;";
constexpr char kTables[] =
    "CREATE TABLE IF NOT EXISTS answers (answer INTEGER PRIMARY KEY, head BLOB NOT NULL);"
    "CREATE TABLE IF NOT EXISTS records (answer INTEGER NOT NULL, number INTEGER NOT NULL,"
    "  record BLOB NOT NULL, PRIMARY KEY (answer, number)) WITHOUT ROWID;"
    "CREATE TABLE IF NOT EXISTS alive (one INTEGER PRIMARY KEY CHECK (one = 1),"
    "  second INTEGER NOT NULL);"
    "PRAGMA user_version = 1;";

}  // namespace

// One process has the folder. The system takes the lock away from one that ends.
class Journal::Lock {
 public:
  static absl::StatusOr<std::unique_ptr<Lock>> Take(const std::string& path,
                                                    const std::string& folder) {
    const int file = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (file < 0) return ErrnoStatus(errno, absl::StrCat("cannot open ", path));
    std::unique_ptr<Lock> lock(new Lock(file));
    if (flock(file, LOCK_EX | LOCK_NB) != 0) {
      const std::string owner = ReadFileOrEmpty(path);
      int64_t process = 0;
      const bool told = absl::SimpleAtoi(owner, &process);
      return absl::UnavailableError(absl::StrCat(
          folder, ": ", told ? absl::StrCat("process ", process) : std::string("another process"),
          " keeps its journal there; give each coordinator a folder of its own"));
    }
    const std::string process = absl::StrCat(getpid(), "\n");
    if (ftruncate(file, 0) != 0 ||
        pwrite(file, process.data(), process.size(), 0) != static_cast<ssize_t>(process.size())) {
      spdlog::warn("{}: cannot write who has it", path);  // a full disk; the lock is taken
    }
    return lock;
  }
  ~Lock() { close(file_); }
  Lock(const Lock&) = delete;

 private:
  explicit Lock(int file) : file_(file) {}
  const int file_;
};

class Journal::Statements {
 public:
  explicit Statements(const Database& database)
      : begin(database, "INSERT INTO answers VALUES (?, ?)"),
        add(database, "INSERT INTO records VALUES (?, ?, ?)"),
        remove_records(database, "DELETE FROM records WHERE answer = ?"),
        remove_answer(database, "DELETE FROM answers WHERE answer = ?"),
        alive(database, "INSERT OR REPLACE INTO alive VALUES (1, ?)") {}

  Statement begin, add, remove_records, remove_answer, alive;
};

// ---- To open ----

Journal::Journal(std::string path) : path_(std::move(path)) {}

absl::StatusOr<std::unique_ptr<Journal>> Journal::Open(const Options& options) {
  if (mkdir(options.folder.c_str(), 0700) != 0 && errno != EEXIST) {
    return ErrnoStatus(errno, absl::StrCat("cannot make ", options.folder));
  }
  std::unique_ptr<Journal> journal(new Journal(absl::StrCat(options.folder, "/journal.sqlite")));
  SKEIN_ASSIGN_OR_RETURN(journal->lock_,
                         Lock::Take(absl::StrCat(options.folder, "/lock"), options.folder));
  // SQLite's own files get the mode of the database.
  const int file = open(journal->path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (file < 0) return ErrnoStatus(errno, absl::StrCat("cannot open ", journal->path_));
  close(file);
  SKEIN_ASSIGN_OR_RETURN(
      journal->database_,
      Database::Open(journal->path_,
                     {.settings = kSettings,
                      .tables = kTables,
                      .advice = "; let the program that wrote it finish its answers, or give "
                                "another folder"}));
  SKEIN_RETURN_IF_ERROR(journal->database_->Execute(
      absl::StrCat("PRAGMA max_page_count = ", options.max_bytes / kPageBytes)));
  SKEIN_RETURN_IF_ERROR(journal->ReadLeft());
  journal->statements_ = std::make_unique<Statements>(*journal->database_);
  journal->writer_ = std::thread([of = journal.get()] { of->Run(); });
  return journal;
}

absl::Status Journal::ReadLeft() {
  Statement alive(*database_, "SELECT second FROM alive");
  if (alive.Step() == SQLITE_ROW) last_alive_ = absl::FromUnixSeconds(alive.Int(0));
  Statement answers(*database_, "SELECT answer, head FROM answers ORDER BY answer");
  Statement records(*database_,
                    "SELECT answer, number, record FROM records ORDER BY answer, number");
  std::map<int64_t, Left> all;
  int code;
  while ((code = answers.Step()) == SQLITE_ROW) {
    all[answers.Int(0)] = {.answer = answers.Int(0), .head = answers.Bytes(1), .records = {}};
  }
  if (code != SQLITE_DONE) return database_->Failed("cannot read");
  while ((code = records.Step()) == SQLITE_ROW) {
    Left& left = all[records.Int(0)];
    left.answer = records.Int(0);
    // Nothing leaves such a gap; who reads an answer without a head removes it.
    if (records.Int(1) != static_cast<int64_t>(left.records.size())) left.head.clear();
    left.records.push_back(records.Bytes(2));
  }
  if (code != SQLITE_DONE) return database_->Failed("cannot read");
  for (auto& [answer, left] : all) {
    next_record_[answer] = static_cast<int64_t>(left.records.size());
    left_.push_back(std::move(left));
  }
  MutexLock lock(&mutex_);
  if (!left_.empty()) next_answer_ = left_.back().answer + 1;
  return absl::OkStatus();
}

Journal::~Journal() {
  if (!writer_.joinable()) return;
  {
    MutexLock lock(&mutex_);
    ending_ = true;
  }
  changed_.NotifyAll();
  writer_.join();
}

std::vector<Journal::Left> Journal::TakeLeft() { return std::exchange(left_, {}); }

// ---- For others ----

int64_t Journal::NextAnswer() {
  MutexLock lock(&mutex_);
  return next_answer_++;
}

void Journal::Append(int64_t answer, std::string head, std::vector<std::string> records,
                     OnWritten on_written) {
  MutexLock lock(&mutex_);
  queue_.push_back({.answer = answer,
                    .remove = false,
                    .head = std::move(head),
                    .records = std::move(records),
                    .on_written = std::move(on_written)});
  changed_.NotifyAll();
}

void Journal::Remove(int64_t answer) {
  MutexLock lock(&mutex_);
  queue_.push_back({.answer = answer, .remove = true, .head = {}, .records = {}, .on_written = {}});
  changed_.NotifyAll();
}

bool Journal::healthy() const {
  MutexLock lock(&mutex_);
  return healthy_;
}

void Journal::Flush() {
  MutexLock lock(&mutex_);
  while (writing_ || !queue_.empty()) changed_.Wait(&mutex_);
}

// ---- The thread ----

void Journal::Run() {
  // The first transaction is at once: a file that cannot be written shows before anybody relies on
  // it.
  auto next_alive = std::chrono::steady_clock::now();
  while (true) {
    std::vector<Change> changes;
    {
      MutexLock lock(&mutex_);
      writing_ = false;
      if (queue_.empty()) changed_.NotifyAll();  // Flush waits for it
      while (queue_.empty() && !ending_ && std::chrono::steady_clock::now() < next_alive) {
        changed_.WaitUntil(&mutex_, next_alive);
      }
      if (queue_.empty() && ending_) return;
      changes.swap(queue_);
      writing_ = true;
    }
    if (std::chrono::steady_clock::now() >= next_alive) {
      next_alive = std::chrono::steady_clock::now() + kAlivePeriod;
    }
    Write(changes);
  }
}

void Journal::Write(std::vector<Change>& changes) {
  const absl::Status written = WriteTransaction(changes);
  bool was_healthy;
  {
    MutexLock lock(&mutex_);
    was_healthy = std::exchange(healthy_, written.ok());
  }
  if (!written.ok()) {
    database_->Execute("ROLLBACK").IgnoreError();
    if (was_healthy) {
      spdlog::error(
          "the journal cannot be written: answers that run now go on, and end with this process: "
          "{}",
          std::string(written.message()));
    }
  } else if (!was_healthy) {
    spdlog::info("the journal is written again");
  }
  for (Change& change : changes) {
    if (change.remove) {
      next_record_.erase(change.answer);
      lost_.erase(change.answer);
      if (!written.ok()) to_remove_.insert(change.answer);
      continue;
    }
    if (written.ok() && !lost_.contains(change.answer)) {
      next_record_[change.answer] += static_cast<int64_t>(change.records.size());
    } else if (lost_.insert(change.answer).second) {
      to_remove_.insert(change.answer);
    }
    if (change.on_written) change.on_written(!lost_.contains(change.answer));
  }
  if (written.ok()) to_remove_.clear();
}

absl::Status Journal::WriteTransaction(const std::vector<Change>& changes) {
  SKEIN_RETURN_IF_ERROR(database_->Execute("BEGIN IMMEDIATE"));
  Statements& run = *statements_;
  const auto remove = [&](int64_t answer) {
    run.remove_records.Bind(1, answer);
    run.remove_answer.Bind(1, answer);
    return run.remove_records.Run() && run.remove_answer.Run();
  };
  for (const int64_t answer : to_remove_) {
    if (!remove(answer)) return database_->Failed("cannot delete");
  }
  std::map<int64_t, int64_t> added;
  for (const Change& change : changes) {
    if (change.remove) {
      if (!remove(change.answer)) return database_->Failed("cannot delete");
      continue;
    }
    if (lost_.contains(change.answer)) continue;
    if (!change.head.empty()) {
      run.begin.Bind(1, change.answer);
      run.begin.BindBlob(2, change.head);
      if (!run.begin.Run()) return database_->Failed("cannot write");
    }
    const auto known = next_record_.find(change.answer);
    int64_t number = (known == next_record_.end() ? 0 : known->second) + added[change.answer];
    for (const std::string& record : change.records) {
      run.add.Bind(1, change.answer);
      run.add.Bind(2, number++);
      run.add.BindBlob(3, record);
      if (!run.add.Run()) return database_->Failed("cannot write");
    }
    added[change.answer] += static_cast<int64_t>(change.records.size());
  }
  run.alive.Bind(1, absl::ToUnixSeconds(absl::Now()));
  if (!run.alive.Run()) return database_->Failed("cannot write");
  return database_->Execute("COMMIT");
}

}  // namespace skein::coordinator
