// SQLite behind Status and destructors: what the server keeps on the drive beside plain files.
//
//   ASSIGN_OR_RETURN(Database database, Database::Open(path, kSchema));
//   RETURN_IF_ERROR(database.Run("INSERT INTO files (id, bytes) VALUES (?1, ?2)", id, bytes));
//   RowsOf<std::string>(database.Query("SELECT id FROM files WHERE bytes > ?1", 100),
//                       FirstText);
//
// What Commit (or Run outside a transaction) has returned ok for survives a power cut: the journal is a write-ahead log
// that is synced at each commit. A Database and its statements are of one thread at a time; statements must not outlive
// it. Errors everywhere name the file: kResourceExhausted when the disk is full, kDataLoss when the file is none of
// SQLite's or damaged, kPermission, kInvalidArgument for a row that breaks a constraint, else kIo.
#ifndef NUNSPARK_SERVER_DATABASE_H_
#define NUNSPARK_SERVER_DATABASE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "nunspark/status.h"

struct sqlite3;
struct sqlite3_stmt;

namespace nunspark::server {

// A prepared statement: bind, step through its rows, bind again. Move-only.
class Statement {
 public:
  // Values of ?1, ?2, ..: integers, text (copied), std::nullopt, std::optional of these.
  // Starts from the first row again. REQUIRES: as many values as the statement has parameters.
  template <typename... Values>
  Status Bind(const Values&... values) {
    Reset(sizeof...(values));
    Status status;
    int index = 0;
    // Stops at the first that fails.
    (void)((status = BindOne(++index, values)).ok() && ...);
    return status;
  }

  // True: there is a row. After the last one the statement has ended, and must be bound again.
  Result<bool> Step();
  // Steps until the end.
  Status Finish();

  // Of the current row; columns count from 0. NULL reads as 0 and empty. Text is valid until the next Step or Bind.
  bool IsNull(int column) const;
  int64_t Int64(int column) const;
  std::string_view Text(int column) const;

  std::string path() const;  // of the database

 private:
  friend class Database;
  struct Finalize {
    void operator()(sqlite3_stmt* statement) const;
  };
  explicit Statement(sqlite3_stmt* statement) : statement_(statement) {}

  void Reset(size_t value_count);
  Status BindInt64(int index, int64_t value);
  Status BindText(int index, std::string_view value);
  Status BindNull(int index);

  template <typename T>
  Status BindOne(int index, const T& value) {
    if constexpr (std::is_same_v<T, std::nullopt_t>) {
      return BindNull(index);
    } else if constexpr (std::is_integral_v<T>) {
      return BindInt64(index, static_cast<int64_t>(value));
    } else {
      return BindText(index, std::string_view(value));
    }
  }
  template <typename T>
  Status BindOne(int index, const std::optional<T>& value) {
    return value ? BindOne(index, *value) : BindNull(index);
  }

  std::unique_ptr<sqlite3_stmt, Finalize> statement_;
};

// An open database file. Move-only.
class Database {
 public:
  // Opens `path`, or creates it for its owner alone. `schema[i]` is a script that makes version i + 1 of version i; the
  // file remembers its version, and what it lacks is run, each script whole or not at all.
  // Errors: kUnsupported for a file of a newer version than schema.size(), or where write-ahead logs do not work.
  static Result<Database> Open(const std::string& path, std::span<const std::string_view> schema);

  // One statement. Errors: kInvalidArgument for what is no SQL.
  Result<Statement> Prepare(std::string_view sql);
  // One statement with its values, ready to be stepped.
  template <typename... Values>
  Result<Statement> Query(std::string_view sql, const Values&... values) {
    ASSIGN_OR_RETURN(Statement statement, Prepare(sql));
    RETURN_IF_ERROR(statement.Bind(values...));
    return statement;
  }
  // One statement with its values, run to its end.
  template <typename... Values>
  Status Run(std::string_view sql, const Values&... values) {
    ASSIGN_OR_RETURN(Statement statement, Query(sql, values...));
    return statement.Finish();
  }

  // Rows that the last INSERT, UPDATE or DELETE changed.
  int64_t changes() const;

  std::string path() const;

 private:
  friend class Transaction;
  struct Close {
    void operator()(sqlite3* database) const;
  };
  explicit Database(sqlite3* database) : database_(database) {}

  std::unique_ptr<sqlite3, Close> database_;
};

inline std::string FirstText(const Statement& row) { return std::string(row.Text(0)); }

// Every row of a query as `record_of` reads it: Record or Result<Record> of a const Statement&.
template <typename Record, typename RecordOf>
Result<std::vector<Record>> RowsOf(Result<Statement> query, const RecordOf& record_of) {
  RETURN_IF_ERROR(query.status());
  std::vector<Record> records;
  while (true) {
    ASSIGN_OR_RETURN(const bool more, query->Step());
    if (!more) return records;
    Result<Record> record = record_of(*query);
    if (!record.ok()) return record.status().WithContext(query->path());
    records.push_back(std::move(record).value());
  }
}

// The first row; nullopt: there is none.
template <typename Record, typename RecordOf>
Result<std::optional<Record>> RowOf(Result<Statement> query, const RecordOf& record_of) {
  ASSIGN_OR_RETURN(std::vector<Record> records, RowsOf<Record>(std::move(query), record_of));
  if (records.empty()) return std::optional<Record>();
  return std::optional<Record>(std::move(records.front()));
}

// All of what is run between Begin and Commit, or nothing. Without Commit the destructor takes it back. Move-only; they
// do not nest.
class Transaction {
 public:
  // Others who would write wait from here on.
  static Result<Transaction> Begin(Database& database);
  Transaction(Transaction&& other) noexcept;
  Transaction& operator=(Transaction&&) = delete;
  ~Transaction();

  // On the drive when it returns ok; else nothing of it is.
  Status Commit();

 private:
  explicit Transaction(sqlite3* database) : database_(database) {}

  sqlite3* database_;  // nullptr: nothing to take back
};

}  // namespace nunspark::server

#endif  // NUNSPARK_SERVER_DATABASE_H_
