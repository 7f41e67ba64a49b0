#include "server/batch_store.h"

#include <utility>

#include <fmt/format.h>

#include "base/check.h"

namespace nunspark::server {
namespace {

constexpr std::string_view kSchema[] = {R"sql(
CREATE TABLE files (
  number INTEGER PRIMARY KEY AUTOINCREMENT,
  id TEXT NOT NULL UNIQUE,
  bytes INTEGER NOT NULL,
  created_at INTEGER NOT NULL,
  expires_at INTEGER,
  filename TEXT NOT NULL,
  purpose TEXT NOT NULL
) STRICT;
CREATE TABLE batches (
  number INTEGER PRIMARY KEY AUTOINCREMENT,
  id TEXT NOT NULL UNIQUE,
  endpoint TEXT NOT NULL,
  input_file_id TEXT NOT NULL,
  completion_window TEXT NOT NULL,
  status TEXT NOT NULL,
  ending TEXT,
  output_file_id TEXT,
  error_file_id TEXT,
  created_at INTEGER NOT NULL,
  expires_at INTEGER NOT NULL,
  in_progress_at INTEGER,
  finalizing_at INTEGER,
  completed_at INTEGER,
  failed_at INTEGER,
  expired_at INTEGER,
  cancelling_at INTEGER,
  cancelled_at INTEGER,
  total INTEGER NOT NULL DEFAULT 0,
  completed INTEGER NOT NULL DEFAULT 0,
  failed INTEGER NOT NULL DEFAULT 0,
  errors TEXT NOT NULL DEFAULT '',
  metadata TEXT NOT NULL DEFAULT '',
  output_expires_after INTEGER
) STRICT;
CREATE INDEX batches_status ON batches (status);
CREATE TABLE lines (
  batch INTEGER NOT NULL,
  line INTEGER NOT NULL,
  custom_id TEXT NOT NULL,
  offset INTEGER NOT NULL,
  bytes INTEGER NOT NULL,
  PRIMARY KEY (batch, line)
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX lines_custom_id ON lines (batch, custom_id);
CREATE TABLE answers (
  batch INTEGER NOT NULL,
  line INTEGER NOT NULL,
  failed INTEGER NOT NULL,
  text TEXT NOT NULL,
  UNIQUE (batch, line)
) STRICT;
)sql"};

constexpr std::string_view kStatusNames[] = {"validating", "in_progress", "finalizing", "cancelling",
                                             "completed",  "failed",      "expired",    "cancelled"};

constexpr std::string_view kFileColumns = "id, bytes, created_at, expires_at, filename, purpose";
constexpr std::string_view kBatchColumns =
    "number, id, endpoint, input_file_id, completion_window, status, ending, output_file_id, error_file_id, "
    "created_at, expires_at, in_progress_at, finalizing_at, completed_at, failed_at, expired_at, cancelling_at, "
    "cancelled_at, total, completed, failed, errors, metadata, output_expires_after";
constexpr std::string_view kOpen = "('validating', 'in_progress', 'finalizing', 'cancelling')";

// Rows that one transaction deletes, so that other writers get their turn.
constexpr int64_t kDeletedAtOnce = 200;

Result<BatchStatus> StatusNamed(std::string_view name) {
  for (size_t i = 0; i < std::size(kStatusNames); ++i) {
    if (kStatusNames[i] == name) return static_cast<BatchStatus>(i);
  }
  return DataLossError(fmt::format("a batch has status '{}', which is not known", name));
}

std::optional<int64_t> OptionalInt64(const Statement& row, int column) {
  return row.IsNull(column) ? std::nullopt : std::optional(row.Int64(column));
}

std::optional<std::string> OptionalText(const Statement& row, int column) {
  return row.IsNull(column) ? std::nullopt : std::optional(std::string(row.Text(column)));
}

FileRecord FileOf(const Statement& row) {
  return {.id = std::string(row.Text(0)),
          .bytes = row.Int64(1),
          .created_at = row.Int64(2),
          .expires_at = OptionalInt64(row, 3),
          .filename = std::string(row.Text(4)),
          .purpose = std::string(row.Text(5))};
}

Result<BatchRecord> BatchOf(const Statement& row) {
  BatchRecord batch;
  batch.number = row.Int64(0);
  batch.id = row.Text(1);
  batch.endpoint = row.Text(2);
  batch.input_file_id = row.Text(3);
  batch.completion_window = row.Text(4);
  ASSIGN_OR_RETURN(batch.status, StatusNamed(row.Text(5)));
  if (!row.IsNull(6)) {
    ASSIGN_OR_RETURN(batch.ending, StatusNamed(row.Text(6)));
  }
  batch.output_file_id = OptionalText(row, 7);
  batch.error_file_id = OptionalText(row, 8);
  batch.created_at = row.Int64(9);
  batch.expires_at = row.Int64(10);
  batch.in_progress_at = OptionalInt64(row, 11);
  batch.finalizing_at = OptionalInt64(row, 12);
  batch.completed_at = OptionalInt64(row, 13);
  batch.failed_at = OptionalInt64(row, 14);
  batch.expired_at = OptionalInt64(row, 15);
  batch.cancelling_at = OptionalInt64(row, 16);
  batch.cancelled_at = OptionalInt64(row, 17);
  batch.total = row.Int64(18);
  batch.completed = row.Int64(19);
  batch.failed = row.Int64(20);
  batch.errors = row.Text(21);
  batch.metadata = row.Text(22);
  batch.output_expires_after_s = OptionalInt64(row, 23);
  return batch;
}

// The column of the time when a batch came to a status.
std::string_view TimeColumn(BatchStatus status) {
  switch (status) {
    case BatchStatus::kValidating: return "created_at";
    case BatchStatus::kInProgress: return "in_progress_at";
    case BatchStatus::kFinalizing: return "finalizing_at";
    case BatchStatus::kCancelling: return "cancelling_at";
    case BatchStatus::kCompleted: return "completed_at";
    case BatchStatus::kFailed: return "failed_at";
    case BatchStatus::kExpired: return "expired_at";
    case BatchStatus::kCancelled: return "cancelled_at";
  }
  return "";
}

}  // namespace

std::string_view BatchStatusName(BatchStatus status) { return kStatusNames[static_cast<size_t>(status)]; }

Result<BatchStore> BatchStore::Open(const DataFolder& folder) {
  std::string files = folder.Path("files");
  RETURN_IF_ERROR(MakeOwnFolder(files));
  ASSIGN_OR_RETURN(Database database, Database::Open(folder.Path("batches.db"), kSchema));
  return BatchStore(std::move(database), std::move(files));
}

Status BatchStore::Recover() {
  ASSIGN_OR_RETURN(const std::vector<std::string> ids,
                   RowsOf<std::string>(database_.Query("SELECT id FROM files"), FirstText));
  return RemoveAllBut(ids, files_folder_);
}

Result<int64_t> BatchStore::Number(Result<Statement> query) {
  RETURN_IF_ERROR(query.status());
  ASSIGN_OR_RETURN(const bool found, query->Step());
  return found ? query->Int64(0) : 0;
}

// ---- files

Result<AtomicFile> BatchStore::CreateFile(const std::string& id) const {
  return AtomicFile::Create(PathOf(id), FileAccess::kOwner);
}

void BatchStore::DiscardFile(const std::string& id) const { (void)RemoveFile(PathOf(id)); }

Status BatchStore::InsertFile(const FileRecord& file) {
  return database_.Run(fmt::format("INSERT INTO files ({}) VALUES (?1, ?2, ?3, ?4, ?5, ?6)", kFileColumns), file.id,
                       file.bytes, file.created_at, file.expires_at, file.filename, file.purpose);
}

Status BatchStore::AddFile(const FileRecord& file) {
  ASSIGN_OR_RETURN(Transaction transaction, Transaction::Begin(database_));
  ASSIGN_OR_RETURN(const int64_t count, Number(database_.Query("SELECT count(*) FROM files")));
  if (count >= kMostFiles) {
    return ResourceExhaustedError(fmt::format("there are {} files already, as many as are kept; delete some", count));
  }
  RETURN_IF_ERROR(InsertFile(file));
  return transaction.Commit();
}

Result<std::optional<FileRecord>> BatchStore::FindFile(std::string_view id) {
  return RowOf<FileRecord>(database_.Query(fmt::format("SELECT {} FROM files WHERE id = ?1", kFileColumns), id),
                           FileOf);
}

Result<File> BatchStore::OpenFile(const std::string& id) const { return File::OpenRead(PathOf(id)); }

Result<std::vector<FileRecord>> BatchStore::ListFiles(const FileList& list) {
  return RowsOf<FileRecord>(
      database_.Query(
          fmt::format("SELECT {} FROM files WHERE (?1 = '' OR purpose = ?1) AND (?2 = '' OR number {} (SELECT number "
                      "FROM files WHERE id = ?2)) ORDER BY number {} LIMIT ?3",
                      kFileColumns, list.ascending ? ">" : "<", list.ascending ? "ASC" : "DESC"),
          list.purpose, list.after, list.limit),
      FileOf);
}

Result<BatchStore::Deletion> BatchStore::DeleteFile(const std::string& id) {
  {
    ASSIGN_OR_RETURN(Transaction transaction, Transaction::Begin(database_));
    ASSIGN_OR_RETURN(
        const int64_t users,
        Number(database_.Query(
            fmt::format("SELECT count(*) FROM batches WHERE input_file_id = ?1 AND status IN {}", kOpen), id)));
    if (users > 0) return Deletion::kInUse;
    RETURN_IF_ERROR(database_.Run("DELETE FROM files WHERE id = ?1", id));
    if (database_.changes() == 0) return Deletion::kNotFound;
    RETURN_IF_ERROR(transaction.Commit());
  }
  RETURN_IF_ERROR(RemoveFile(PathOf(id)));
  return Deletion::kDone;
}

Result<std::vector<std::string>> BatchStore::FilesExpiredBy(int64_t time) {
  return RowsOf<std::string>(database_.Query("SELECT id FROM files WHERE expires_at <= ?1", time), FirstText);
}

// ---- batches

Status BatchStore::AddBatch(BatchRecord& batch) {
  ASSIGN_OR_RETURN(Transaction transaction, Transaction::Begin(database_));
  ASSIGN_OR_RETURN(const int64_t open,
                   Number(database_.Query(fmt::format("SELECT count(*) FROM batches WHERE status IN {}", kOpen))));
  if (open >= kMostOpenBatches) {
    return ResourceExhaustedError(
        fmt::format("there are {} batches already that have not ended, as many as may be", open));
  }
  ASSIGN_OR_RETURN(const std::optional<FileRecord> input, FindFile(batch.input_file_id));
  if (!input) return NotFoundError(fmt::format("there is no file {}", batch.input_file_id));
  RETURN_IF_ERROR(database_.Run(
      "INSERT INTO batches (id, endpoint, input_file_id, completion_window, status, created_at, expires_at, metadata, "
      "output_expires_after) VALUES (?1, ?2, ?3, ?4, 'validating', ?5, ?6, ?7, ?8)",
      batch.id, batch.endpoint, batch.input_file_id, batch.completion_window, batch.created_at, batch.expires_at,
      batch.metadata, batch.output_expires_after_s));
  ASSIGN_OR_RETURN(batch.number, Number(database_.Query("SELECT last_insert_rowid()")));
  RETURN_IF_ERROR(database_.Run(fmt::format("DELETE FROM batches WHERE status NOT IN {} AND number <= ?1", kOpen),
                                batch.number - kMostBatches));
  return transaction.Commit();
}

Result<std::optional<BatchRecord>> BatchStore::FindBatch(std::string_view id) {
  return RowOf<BatchRecord>(database_.Query(fmt::format("SELECT {} FROM batches WHERE id = ?1", kBatchColumns), id),
                            BatchOf);
}

Result<std::vector<BatchRecord>> BatchStore::ListBatches(std::string_view after, int64_t limit) {
  return RowsOf<BatchRecord>(
      database_.Query(fmt::format("SELECT {} FROM batches WHERE ?1 = '' OR number < (SELECT number FROM "
                                  "batches WHERE id = ?1) ORDER BY number DESC LIMIT ?2",
                                  kBatchColumns),
                      after, limit),
      BatchOf);
}

Result<std::vector<BatchRecord>> BatchStore::OpenBatches() {
  return RowsOf<BatchRecord>(
      database_.Query(fmt::format("SELECT {} FROM batches WHERE status IN {} ORDER BY number", kBatchColumns, kOpen)),
      BatchOf);
}

Result<bool> BatchStore::CancelBatch(std::string_view id, int64_t time) {
  RETURN_IF_ERROR(database_.Run(
      "UPDATE batches SET status = 'cancelling', cancelling_at = ?2 WHERE id = ?1 AND status IN ('validating', "
      "'in_progress')",
      id, time));
  return database_.changes() > 0;
}

Status BatchStore::ForgetLines(int64_t batch) { return database_.Run("DELETE FROM lines WHERE batch = ?1", batch); }

Result<std::vector<BatchLine>> BatchStore::AddLines(int64_t batch, std::span<const BatchLine> lines) {
  ASSIGN_OR_RETURN(Transaction transaction, Transaction::Begin(database_));
  ASSIGN_OR_RETURN(Statement insert,
                   database_.Prepare("INSERT OR IGNORE INTO lines (batch, line, custom_id, offset, bytes) VALUES (?1, "
                                     "?2, ?3, ?4, ?5)"));
  std::vector<BatchLine> again;
  for (const BatchLine& line : lines) {
    RETURN_IF_ERROR(insert.Bind(batch, line.line, line.custom_id, line.offset, line.bytes));
    RETURN_IF_ERROR(insert.Finish());
    if (database_.changes() == 0) again.push_back(line);
  }
  RETURN_IF_ERROR(transaction.Commit());
  return again;
}

Status BatchStore::StartBatch(int64_t batch, int64_t total, int64_t time) {
  return database_.Run(
      "UPDATE batches SET status = 'in_progress', in_progress_at = ?2, total = ?3 WHERE number = ?1 AND status = "
      "'validating'",
      batch, time, total);
}

Status BatchStore::FailBatch(int64_t batch, const std::string& errors, int64_t time) {
  return database_.Run(
      "UPDATE batches SET status = 'failed', failed_at = ?2, errors = ?3 WHERE number = ?1 AND status = 'validating'",
      batch, time, errors);
}

Result<std::vector<BatchLine>> BatchStore::LinesToDo(int64_t batch, int64_t after, int64_t limit) {
  return RowsOf<BatchLine>(
      database_.Query("SELECT line, custom_id, offset, bytes FROM lines WHERE batch = ?1 AND line > ?2 AND NOT EXISTS "
                      "(SELECT 1 FROM answers WHERE answers.batch = lines.batch AND answers.line = lines.line) ORDER "
                      "BY line LIMIT ?3",
                      batch, after, limit),
      [](const Statement& row) {
        return BatchLine{
            .line = row.Int64(0), .custom_id = std::string(row.Text(1)), .offset = row.Int64(2), .bytes = row.Int64(3)};
      });
}

Status BatchStore::AddAnswers(std::span<const LineAnswer> answers) {
  ASSIGN_OR_RETURN(Transaction transaction, Transaction::Begin(database_));
  ASSIGN_OR_RETURN(Statement insert, database_.Prepare("INSERT OR IGNORE INTO answers (batch, line, failed, text) "
                                                       "VALUES (?1, ?2, ?3, ?4)"));
  ASSIGN_OR_RETURN(Statement count, database_.Prepare("UPDATE batches SET completed = completed + (NOT ?2), failed = "
                                                      "failed + ?2 WHERE number = ?1"));
  for (const LineAnswer& answer : answers) {
    RETURN_IF_ERROR(insert.Bind(answer.batch, answer.line, answer.failed, answer.text));
    RETURN_IF_ERROR(insert.Finish());
    if (database_.changes() == 0) continue;
    RETURN_IF_ERROR(count.Bind(answer.batch, answer.failed));
    RETURN_IF_ERROR(count.Finish());
  }
  return transaction.Commit();
}

Status BatchStore::SetEnding(int64_t batch, BatchStatus ending, int64_t time) {
  if (ending == BatchStatus::kCancelled) {
    return database_.Run(
        "UPDATE batches SET ending = 'cancelled' WHERE number = ?1 AND status = 'cancelling' AND ending IS NULL",
        batch);
  }
  return database_.Run(
      "UPDATE batches SET status = 'finalizing', finalizing_at = ?2, ending = ?3 WHERE number = ?1 AND status IN "
      "('validating', 'in_progress')",
      batch, time, BatchStatusName(ending));
}

Result<Statement> BatchStore::Answers(int64_t batch) {
  return database_.Query(
      "SELECT lines.line, lines.custom_id, answers.failed, answers.text FROM lines LEFT JOIN answers ON answers.batch "
      "= lines.batch AND answers.line = lines.line WHERE lines.batch = ?1 ORDER BY lines.line",
      batch);
}

Status BatchStore::EndBatch(const BatchRecord& batch, const std::optional<FileRecord>& output,
                            const std::optional<FileRecord>& errors, int64_t time) {
  CHECK(batch.ending.has_value());
  ASSIGN_OR_RETURN(Transaction transaction, Transaction::Begin(database_));
  std::optional<std::string> output_id, errors_id;
  for (const auto& [file, id] : {std::pair(&output, &output_id), std::pair(&errors, &errors_id)}) {
    if (!file->has_value()) continue;
    RETURN_IF_ERROR(InsertFile(**file));
    *id = (*file)->id;
  }
  RETURN_IF_ERROR(database_.Run(
      fmt::format("UPDATE batches SET status = ?2, {} = ?3, output_file_id = ?4, error_file_id = ?5 WHERE number = ?1",
                  TimeColumn(*batch.ending)),
      batch.number, BatchStatusName(*batch.ending), time, output_id, errors_id));
  return transaction.Commit();
}

Result<bool> BatchStore::CleanSome() {
  const auto ended = [](std::string_view table) {
    return fmt::format(
        "DELETE FROM {0} WHERE (batch, line) IN (SELECT batch, line FROM {0} WHERE batch NOT IN (SELECT number FROM "
        "batches WHERE status IN {1}) LIMIT {2})",
        table, kOpen, kDeletedAtOnce);
  };
  // Answers first: without its line none would be found again.
  RETURN_IF_ERROR(database_.Run(ended("answers")));
  if (database_.changes() > 0) return true;
  RETURN_IF_ERROR(database_.Run(ended("lines")));
  return database_.changes() > 0;
}

}  // namespace nunspark::server
