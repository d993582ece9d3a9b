#include "coordinator/sqlite/database.h"

#include <sqlite3.h>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace skein::coordinator {

void Database::Closer::operator()(sqlite3* database) const { sqlite3_close(database); }

absl::StatusOr<Database> Database::Open(const std::string& path, const Schema& schema) {
  Database database(path);
  SKEIN_RETURN_IF_ERROR(database.Prepare(schema));
  return database;
}

absl::Status Database::Prepare(const Schema& schema) {
  sqlite3* opened = nullptr;
  const int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_FULLMUTEX;
  const int code = sqlite3_open_v2(path_.c_str(), &opened, flags, nullptr);
  database_.reset(opened);
  if (code != SQLITE_OK) return Failed("cannot open the database");
  SKEIN_RETURN_IF_ERROR(Execute(schema.settings));
  {
    Statement tables(*this, "SELECT count(*) FROM sqlite_schema");
    Statement version(*this, "PRAGMA user_version");
    if (tables.Step() != SQLITE_ROW || version.Step() != SQLITE_ROW) return Failed("cannot read");
    if (version.Int(0) != schema.version && (tables.Int(0) > 0 || version.Int(0) != 0)) {
      return absl::FailedPreconditionError(
          absl::StrCat(path_, ": a database of something else, or of another version (",
                       version.Int(0), "; this one is ", schema.version, ")", schema.advice));
    }
  }
  return Execute(schema.tables);
}

absl::Status Database::Execute(const std::string& statements) {
  const int code = sqlite3_exec(get(), statements.c_str(), nullptr, nullptr, nullptr);
  return code == SQLITE_OK ? absl::OkStatus() : Failed("cannot use the database");
}

absl::Status Database::Failed(const char* what) const {
  const std::string text = absl::StrCat(path_, ": ", what, ": ", sqlite3_errmsg(get()));
  switch (sqlite3_errcode(get())) {
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
      return absl::UnavailableError(absl::StrCat(text, "; does another process use it?"));
    case SQLITE_NOTADB:
    case SQLITE_CORRUPT:
      return absl::FailedPreconditionError(text);
    case SQLITE_FULL:
      return absl::ResourceExhaustedError(text);
    default:
      return absl::InternalError(text);
  }
}

Statement::Statement(const Database& database, const char* sql) {
  sqlite3_prepare_v2(database.get(), sql, -1, &statement_, nullptr);
}
Statement::~Statement() { sqlite3_finalize(statement_); }

int Statement::Step() { return sqlite3_step(statement_); }
void Statement::Reset() { sqlite3_reset(statement_); }
bool Statement::Run() {
  const bool done = Step() == SQLITE_DONE;
  Reset();
  return done;
}

void Statement::Bind(int place, int64_t value) { sqlite3_bind_int64(statement_, place, value); }
void Statement::BindText(int place, const std::string& value) {
  sqlite3_bind_text64(statement_, place, value.data(), value.size(), SQLITE_STATIC, SQLITE_UTF8);
}
void Statement::BindBlob(int place, const std::string& value) {
  sqlite3_bind_blob64(statement_, place, value.data(), value.size(), SQLITE_STATIC);
}

int64_t Statement::Int(int column) const { return sqlite3_column_int64(statement_, column); }
std::string Statement::Bytes(int column) const {
  const auto* const bytes = static_cast<const char*>(sqlite3_column_blob(statement_, column));
  if (bytes == nullptr) return "";
  return std::string(bytes, static_cast<size_t>(sqlite3_column_bytes(statement_, column)));
}

}  // namespace skein::coordinator
