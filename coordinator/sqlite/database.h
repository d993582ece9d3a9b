// SQLite, as the coordinator's files use it: one process at a time, a version, errors by name.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

struct sqlite3;
struct sqlite3_stmt;

namespace skein::coordinator {

// One thread at a time. Statements end before it.
class Database {
 public:
  struct Schema {
    const char* settings = "";  // run before anything is read
    const char* tables = "";    // makes what is missing, and sets user_version
    int version = 1;
    const char* advice = "";  // behind the error of another version
  };

  // Makes the file where it is missing. Unavailable: another process has it; FailedPrecondition: it
  // is no such database, of another version, or broken; Internal names what else fails.
  static absl::StatusOr<Database> Open(const std::string& path, const Schema& schema);

  absl::Status Execute(const std::string& statements);
  // The status of the call that failed last: besides Open's codes ResourceExhausted where there is
  // no room.
  absl::Status Failed(const char* what) const;
  sqlite3* get() const { return database_.get(); }

 private:
  struct Closer {
    void operator()(sqlite3* database) const;
  };
  explicit Database(std::string path) : path_(std::move(path)) {}
  absl::Status Prepare(const Schema& schema);

  std::string path_;
  std::unique_ptr<sqlite3, Closer> database_;
};

class Statement {
 public:
  // One that cannot be made fails in Step.
  Statement(const Database& database, const char* sql);
  ~Statement();
  Statement(const Statement&) = delete;
  Statement& operator=(const Statement&) = delete;

  // SQLite's code.
  int Step();
  void Reset();
  // Steps a statement without rows to its end, and resets it.
  bool Run();
  // Places are from 1. A text or blob stays where it is until the step is over.
  void Bind(int place, int64_t value);
  void BindText(int place, const std::string& value);
  void BindBlob(int place, const std::string& value);
  // Columns are from 0.
  int64_t Int(int column) const;
  std::string Bytes(int column) const;  // of a text or a blob

 private:
  sqlite3_stmt* statement_ = nullptr;
};

}  // namespace skein::coordinator
