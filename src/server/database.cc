#include "server/database.h"

#include <fcntl.h>
#include <sqlite3.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include <fmt/format.h>

#include "base/check.h"
#include "base/errno_status.h"

namespace nunspark::server {
namespace {

// What a writer of another process is waited for.
constexpr int kBusyTimeoutMs = 10000;

// WAL + FULL: a commit is one append and one fsync of the log. The log is cut back after a large transaction.
constexpr const char* kSettings =
    "PRAGMA synchronous = FULL;"
    "PRAGMA foreign_keys = ON;"
    "PRAGMA trusted_schema = OFF;"
    "PRAGMA journal_size_limit = 16777216;";

// `path`: of the file, where SQLite cannot tell.
Status ErrorOf(sqlite3* database, int code, std::string_view path) {
  const std::string text = fmt::format("{}: {}", path, sqlite3_errmsg(database));
  const int error = sqlite3_system_errno(database);
  switch (code & 0xFF) {
    case SQLITE_FULL: return ResourceExhaustedError(fmt::format("{}: no space is left on the device", path));
    case SQLITE_CORRUPT: return DataLossError(fmt::format("{}: the database is damaged", path));
    case SQLITE_NOTADB: return DataLossError(fmt::format("{}: expected a SQLite database, found something else", path));
    case SQLITE_PERM:
    case SQLITE_AUTH:
    case SQLITE_READONLY: return PermissionError(text);
    case SQLITE_BUSY: return IoError(fmt::format("{}: another process holds the database", path));
    case SQLITE_IOERR:
    case SQLITE_CANTOPEN: return error != 0 ? ErrnoStatus(error, "access to", path) : IoError(text);
    case SQLITE_TOOBIG:
    case SQLITE_NOMEM: return ResourceExhaustedError(text);
    case SQLITE_ERROR:
    case SQLITE_MISUSE:
    case SQLITE_RANGE:
    case SQLITE_MISMATCH:
    case SQLITE_CONSTRAINT: return InvalidArgumentError(text);
    default: return IoError(text);
  }
}

std::string PathOf(sqlite3* database) {
  const char* const path = sqlite3_db_filename(database, "main");
  return path != nullptr ? path : "";
}

Status StatusOf(sqlite3* database, int code) {
  return code == SQLITE_OK ? Status() : ErrorOf(database, code, PathOf(database));
}

// Any number of statements without rows of interest.
Status Script(sqlite3* database, const std::string& sql) {
  return StatusOf(database, sqlite3_exec(database, sql.c_str(), nullptr, nullptr, nullptr));
}

// SQLite itself would let whoever the umask lets read it.
Status CreateForOwner(const std::string& path) {
  // An existing one is not even opened: closing it would end the locks of another connection of this process.
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (fd < 0) return errno == EEXIST ? Status() : ErrnoStatus(errno, "creating", path);
  ::close(fd);
  return Status();
}

Result<int64_t> VersionOf(Database& database) {
  ASSIGN_OR_RETURN(Statement row, database.Query("PRAGMA user_version"));
  ASSIGN_OR_RETURN(const bool found, row.Step());
  return found ? row.Int64(0) : 0;
}

// `raw`: the same database.
Status Upgrade(Database& database, sqlite3* raw, std::span<const std::string_view> schema) {
  ASSIGN_OR_RETURN(int64_t version, VersionOf(database));
  if (version < 0 || version > std::ssize(schema)) {
    return UnsupportedError(fmt::format(
        "{}: expected schema version {} or lower, found {}; a newer nunspark wrote it: use that one, or another folder",
        database.path(), schema.size(), version));
  }
  while (version < std::ssize(schema)) {
    ASSIGN_OR_RETURN(Transaction transaction, Transaction::Begin(database));
    // Another process may have been faster.
    ASSIGN_OR_RETURN(const int64_t now, VersionOf(database));
    if (now == version) {
      RETURN_IF_ERROR(Script(raw, std::string(schema[static_cast<size_t>(version)])));
      RETURN_IF_ERROR(Script(raw, fmt::format("PRAGMA user_version = {}", version + 1)));
    }
    RETURN_IF_ERROR(transaction.Commit());
    ++version;
  }
  return Status();
}

}  // namespace

void Statement::Finalize::operator()(sqlite3_stmt* statement) const { sqlite3_finalize(statement); }

void Statement::Reset(size_t value_count) {
  CHECK(sqlite3_bind_parameter_count(statement_.get()) == static_cast<int>(value_count));
  // Repeats the error of the last Step, which has been told.
  (void)sqlite3_reset(statement_.get());
}

Status Statement::BindInt64(int index, int64_t value) {
  return StatusOf(sqlite3_db_handle(statement_.get()), sqlite3_bind_int64(statement_.get(), index, value));
}

Status Statement::BindText(int index, std::string_view value) {
  // An empty view may have no address, which SQLite would take for NULL.
  const char* const text = value.data() != nullptr ? value.data() : "";
  return StatusOf(sqlite3_db_handle(statement_.get()),
                  sqlite3_bind_text64(statement_.get(), index, text, value.size(), SQLITE_TRANSIENT, SQLITE_UTF8));
}

Status Statement::BindNull(int index) {
  return StatusOf(sqlite3_db_handle(statement_.get()), sqlite3_bind_null(statement_.get(), index));
}

Result<bool> Statement::Step() {
  const int code = sqlite3_step(statement_.get());
  if (code == SQLITE_ROW) return true;
  if (code == SQLITE_DONE) return false;
  sqlite3* const database = sqlite3_db_handle(statement_.get());
  return ErrorOf(database, code, PathOf(database));
}

Status Statement::Finish() {
  while (true) {
    ASSIGN_OR_RETURN(const bool more, Step());
    if (!more) return Status();
  }
}

bool Statement::IsNull(int column) const { return sqlite3_column_type(statement_.get(), column) == SQLITE_NULL; }
int64_t Statement::Int64(int column) const { return sqlite3_column_int64(statement_.get(), column); }

std::string Statement::path() const { return PathOf(sqlite3_db_handle(statement_.get())); }

std::string_view Statement::Text(int column) const {
  const unsigned char* const text = sqlite3_column_text(statement_.get(), column);
  const auto bytes = static_cast<size_t>(sqlite3_column_bytes(statement_.get(), column));
  return text != nullptr ? std::string_view(reinterpret_cast<const char*>(text), bytes) : std::string_view();
}

void Database::Close::operator()(sqlite3* database) const { sqlite3_close_v2(database); }

Result<Database> Database::Open(const std::string& path, std::span<const std::string_view> schema) {
  RETURN_IF_ERROR(CreateForOwner(path));
  sqlite3* raw = nullptr;
  const int code = sqlite3_open_v2(path.c_str(), &raw, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, nullptr);
  Database database(raw);
  if (code != SQLITE_OK) return ErrorOf(raw, code, path);
  sqlite3_extended_result_codes(raw, 1);
  sqlite3_busy_timeout(raw, kBusyTimeoutMs);
  {
    ASSIGN_OR_RETURN(Statement mode, database.Query("PRAGMA journal_mode = WAL"));
    ASSIGN_OR_RETURN(const bool found, mode.Step());
    if (!found || mode.Text(0) != "wal") {
      return UnsupportedError(fmt::format("{}: this file system has no shared memory for SQLite's log", path));
    }
  }
  RETURN_IF_ERROR(Script(raw, kSettings));
  RETURN_IF_ERROR(Upgrade(database, raw, schema));
  return database;
}

Result<Statement> Database::Prepare(std::string_view sql) {
  sqlite3_stmt* statement = nullptr;
  const int code =
      sqlite3_prepare_v3(database_.get(), sql.data(), static_cast<int>(sql.size()), 0, &statement, nullptr);
  if (code != SQLITE_OK) return ErrorOf(database_.get(), code, path());
  CHECK(statement != nullptr);
  return Statement(statement);
}

int64_t Database::changes() const { return sqlite3_changes64(database_.get()); }

std::string Database::path() const { return PathOf(database_.get()); }

Result<Transaction> Transaction::Begin(Database& database) {
  RETURN_IF_ERROR(database.Run("BEGIN IMMEDIATE"));
  return Transaction(database.database_.get());
}

Transaction::Transaction(Transaction&& other) noexcept : database_(std::exchange(other.database_, nullptr)) {}

Transaction::~Transaction() {
  // SQLite has ended it by itself after some errors.
  if (database_ != nullptr && sqlite3_get_autocommit(database_) == 0) (void)Script(database_, "ROLLBACK");
}

Status Transaction::Commit() {
  CHECK(database_ != nullptr);
  RETURN_IF_ERROR(Script(database_, "COMMIT"));
  database_ = nullptr;
  return Status();
}

}  // namespace nunspark::server
