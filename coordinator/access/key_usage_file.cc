#include "coordinator/access/key_usage_file.h"

#include <sqlite3.h>

#include <chrono>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "spdlog/spdlog.h"

namespace skein::coordinator {
namespace {

constexpr std::chrono::milliseconds kPeriod(500);
constexpr int kVersion = 1;

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

class Statement {
 public:
  Statement(sqlite3* database, const char* sql) {
    sqlite3_prepare_v2(database, sql, -1, &statement_, nullptr);
  }
  ~Statement() { sqlite3_finalize(statement_); }
  Statement(const Statement&) = delete;

  // A statement that could not be made fails here.
  int Step() { return sqlite3_step(statement_); }
  void Bind(int at, int64_t value) { sqlite3_bind_int64(statement_, at, value); }
  void Bind(int at, const std::string& value) {
    sqlite3_bind_text(statement_, at, value.data(), static_cast<int>(value.size()),
                      SQLITE_TRANSIENT);
  }
  void Reset() { sqlite3_reset(statement_); }
  int64_t Int(int column) { return sqlite3_column_int64(statement_, column); }
  std::string Text(int column) {
    const unsigned char* const text = sqlite3_column_text(statement_, column);
    return text == nullptr ? "" : reinterpret_cast<const char*>(text);
  }

 private:
  sqlite3_stmt* statement_ = nullptr;
};

}  // namespace

void KeyUsageFile::Closer::operator()(sqlite3* database) const { sqlite3_close(database); }

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
  SKEIN_RETURN_IF_ERROR(file->Prepare());
  SKEIN_RETURN_IF_ERROR(file->Restore());
  file->writer_ = std::thread([of = file.get()] { of->Run(); });
  return file;
}

absl::Status KeyUsageFile::Failed(const char* what) const {
  const std::string text = absl::StrCat(path_, ": ", what, ": ", sqlite3_errmsg(database_.get()));
  switch (sqlite3_errcode(database_.get())) {
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
      return absl::UnavailableError(absl::StrCat(text, "; does another process use it?"));
    case SQLITE_NOTADB:
      return absl::FailedPreconditionError(text);
    default:
      return absl::InternalError(text);
  }
}

absl::Status KeyUsageFile::Execute(const char* statements) {
  const int code = sqlite3_exec(database_.get(), statements, nullptr, nullptr, nullptr);
  return code == SQLITE_OK ? absl::OkStatus() : Failed("cannot use the database");
}

absl::Status KeyUsageFile::Prepare() {
  sqlite3* opened = nullptr;
  const int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_FULLMUTEX;
  const int code = sqlite3_open_v2(path_.c_str(), &opened, flags, nullptr);
  database_.reset(opened);
  if (code != SQLITE_OK) return Failed("cannot open the database");
  SKEIN_RETURN_IF_ERROR(Execute(kSettings));
  Statement tables(database_.get(), "SELECT count(*) FROM sqlite_schema");
  Statement version(database_.get(), "PRAGMA user_version");
  if (tables.Step() != SQLITE_ROW || version.Step() != SQLITE_ROW) return Failed("cannot read");
  if (version.Int(0) != kVersion && (tables.Int(0) > 0 || version.Int(0) != 0)) {
    return absl::FailedPreconditionError(
        absl::StrCat(path_, ": a database of something else, or of another version"));
  }
  return Execute(kTables);
}

absl::Status KeyUsageFile::Restore() {
  Statement select(database_.get(), "SELECT name, second, requests, tokens FROM usage");
  std::vector<SecondOfUse> seconds;
  int code;
  while ((code = select.Step()) == SQLITE_ROW) {
    seconds.push_back({select.Text(0), select.Int(1), select.Int(2), select.Int(3)});
  }
  if (code != SQLITE_DONE) return Failed("cannot read");
  usage_->Restore(seconds);
  return absl::OkStatus();
}

absl::Status KeyUsageFile::WriteTransaction() {
  SKEIN_RETURN_IF_ERROR(Execute("BEGIN IMMEDIATE"));
  Statement write(database_.get(), "INSERT OR REPLACE INTO usage VALUES (?, ?, ?, ?)");
  for (const auto& [key, of] : pending_) {
    write.Bind(1, of.name);
    write.Bind(2, of.second);
    write.Bind(3, of.requests);
    write.Bind(4, of.tokens);
    if (write.Step() != SQLITE_DONE) return Failed("cannot write");
    write.Reset();
  }
  Statement forget(database_.get(), "DELETE FROM usage WHERE second < ?");
  forget.Bind(1, usage_->FirstSecond());
  if (forget.Step() != SQLITE_DONE) return Failed("cannot write");
  return Execute("COMMIT");
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
    sqlite3_exec(database_.get(), "ROLLBACK", nullptr, nullptr, nullptr);
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
