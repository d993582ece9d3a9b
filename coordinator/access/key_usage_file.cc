#include "coordinator/access/key_usage_file.h"

#include <sqlite3.h>

#include <chrono>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "spdlog/spdlog.h"

namespace skein::coordinator {
namespace {

constexpr std::chrono::milliseconds kPeriod(500);

// One process at a time: two would overwrite each other's counts. NORMAL: the disk is waited for
// when the log is folded into the database, not for each transaction.
constexpr char kSettings[] =
    "PRAGMA locking_mode = EXCLUSIVE; PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL;"
    "BEGIN IMMEDIATE; COMMIT;";
constexpr char kTables[] =
    "CREATE TABLE IF NOT EXISTS usage (name TEXT NOT NULL, second INTEGER NOT NULL,"
    "  requests INTEGER NOT NULL, tokens INTEGER NOT NULL,"
    "  PRIMARY KEY (name, second)) WITHOUT ROWID;"
    "PRAGMA user_version = 1;";

}  // namespace

KeyUsageFile::KeyUsageFile(std::string path, KeyUsage* usage)
    : path_(std::move(path)), usage_(usage) {}

KeyUsageFile::~KeyUsageFile() {
  if (!writer_.joinable()) return;
  {
    MutexLock lock(&mutex_);
    ending_ = true;
  }
  ends_.NotifyAll();
  writer_.join();
  if (const absl::Status written = Write(); !written.ok()) {
    spdlog::error("the last counts of API keys are lost: {}", std::string(written.message()));
  }
}

absl::StatusOr<std::unique_ptr<KeyUsageFile>> KeyUsageFile::Open(const std::string& path,
                                                                 KeyUsage* usage) {
  std::unique_ptr<KeyUsageFile> file(new KeyUsageFile(path, usage));
  SKEIN_ASSIGN_OR_RETURN(file->database_,
                         Database::Open(path, {.settings = kSettings, .tables = kTables}));
  SKEIN_RETURN_IF_ERROR(file->Restore());
  file->writer_ = std::thread([of = file.get()] { of->Run(); });
  return file;
}

absl::Status KeyUsageFile::Restore() {
  Statement select(*database_, "SELECT name, second, requests, tokens FROM usage");
  std::vector<SecondOfUse> seconds;
  int code;
  while ((code = select.Step()) == SQLITE_ROW) {
    seconds.push_back({select.Bytes(0), select.Int(1), select.Int(2), select.Int(3)});
  }
  if (code != SQLITE_DONE) return database_->Failed("cannot read");
  usage_->Restore(seconds);
  return absl::OkStatus();
}

absl::Status KeyUsageFile::WriteTransaction() {
  SKEIN_RETURN_IF_ERROR(database_->Execute("BEGIN IMMEDIATE"));
  Statement write(*database_, "INSERT OR REPLACE INTO usage VALUES (?, ?, ?, ?)");
  for (const auto& [key, of] : pending_) {
    write.BindText(1, of.name);
    write.Bind(2, of.second);
    write.Bind(3, of.requests);
    write.Bind(4, of.tokens);
    if (write.Step() != SQLITE_DONE) return database_->Failed("cannot write");
    write.Reset();
  }
  Statement forget(*database_, "DELETE FROM usage WHERE second < ?");
  forget.Bind(1, usage_->FirstSecond());
  if (forget.Step() != SQLITE_DONE) return database_->Failed("cannot write");
  return database_->Execute("COMMIT");
}

absl::Status KeyUsageFile::Write() {
  MutexLock lock(&writing_);
  for (SecondOfUse& of : usage_->TakeChanges()) {
    pending_[{of.name, of.second}] = std::move(of);
  }
  // What could not be written for a minute is of no use any more.
  std::erase_if(pending_, [first = usage_->FirstSecond()](const auto& of) {
    return of.second.second < first;
  });
  if (pending_.empty()) return absl::OkStatus();
  const absl::Status written = WriteTransaction();
  if (written.ok()) {
    pending_.clear();
  } else {
    database_->Execute("ROLLBACK").IgnoreError();
  }
  return written;
}

void KeyUsageFile::Run() {
  bool failed = false;
  while (true) {
    {
      const auto next = std::chrono::steady_clock::now() + kPeriod;
      MutexLock lock(&mutex_);
      while (!ending_ && ends_.WaitUntil(&mutex_, next)) {
      }
      if (ending_) return;
    }
    const absl::Status written = Write();
    if (!written.ok() && !failed) {
      spdlog::error("counts of API keys stay in memory: {}", std::string(written.message()));
    }
    failed = !written.ok();
  }
}

}  // namespace skein::coordinator
