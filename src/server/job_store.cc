#include "server/job_store.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <map>
#include <utility>

#include <fmt/format.h>

#include "base/size.h"
#include "server/answers.h"

namespace nunspark::server {
namespace {

// Of uploaded texts together. Older ones that no job needs make room.
constexpr int64_t kMostUploadBytes = int64_t{2} << 30;

constexpr std::string_view kSchema[] = {R"(
CREATE TABLE files (
  id TEXT PRIMARY KEY,
  name TEXT NOT NULL,
  bytes INTEGER NOT NULL,
  created INTEGER NOT NULL
) STRICT;
CREATE TABLE batches (
  id TEXT PRIMARY KEY,
  request TEXT NOT NULL
) STRICT;
CREATE TABLE jobs (
  sequence INTEGER PRIMARY KEY AUTOINCREMENT,
  id TEXT NOT NULL UNIQUE,
  batch_id TEXT NOT NULL REFERENCES batches (id),
  file_id TEXT NOT NULL,
  file_name TEXT NOT NULL,
  status TEXT NOT NULL,
  tokens_done INTEGER NOT NULL DEFAULT 0,
  error TEXT NOT NULL DEFAULT '',
  output_path TEXT NOT NULL DEFAULT '',
  metrics TEXT NOT NULL DEFAULT '',
  created INTEGER NOT NULL,
  ended INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE INDEX jobs_by_file ON jobs (file_id);
CREATE INDEX jobs_by_batch ON jobs (batch_id);
)"};

}  // namespace

Result<std::unique_ptr<JobStore>> JobStore::Open(const std::string& path) {
  ASSIGN_OR_RETURN(DataFolder folder, DataFolder::Open(path));
  const std::string uploads = folder.Path("uploads");
  if (::mkdir(uploads.c_str(), 0700) != 0 && errno != EEXIST) return ErrnoStatus(errno, "creating", uploads);
  ASSIGN_OR_RETURN(Database database, Database::Open(folder.Path("web.db"), kSchema));
  return std::unique_ptr<JobStore>(new JobStore(std::move(folder), std::move(database)));
}

std::string JobStore::UploadPath(const std::string& id) const { return folder_.Path("uploads/" + id); }

Status JobStore::MakeRoom(int64_t bytes) {
  ASSIGN_OR_RETURN(Statement total, database_.Query("SELECT coalesce(sum(bytes), 0) FROM files"));
  RETURN_IF_ERROR(total.Step().status());
  int64_t stored = total.Int64(0);
  if (stored + bytes <= kMostUploadBytes) return Status();
  std::vector<std::pair<std::string, int64_t>> oldest;
  {
    ASSIGN_OR_RETURN(Statement rows,
                     database_.Query("SELECT id, bytes FROM files WHERE id NOT IN (SELECT file_id FROM jobs WHERE "
                                     "status IN ('queued', 'running')) ORDER BY created, rowid"));
    ASSIGN_OR_RETURN(bool more, rows.Step());
    while (more) {
      oldest.emplace_back(rows.Text(0), rows.Int64(1));
      ASSIGN_OR_RETURN(more, rows.Step());
    }
  }
  for (const auto& [id, size] : oldest) {
    if (stored + bytes <= kMostUploadBytes) break;
    RETURN_IF_ERROR(database_.Run("DELETE FROM files WHERE id = ?1", id));
    ::unlink(UploadPath(id).c_str());
    stored -= size;
  }
  if (stored + bytes <= kMostUploadBytes) return Status();
  return ResourceExhaustedError(fmt::format("files that jobs wait for take {} already, of {}; try again later",
                                            FormatSize(stored), FormatSize(kMostUploadBytes)));
}

Result<std::vector<StoredFile>> JobStore::AddFiles(const std::vector<UploadedFile>& files) {
  int64_t bytes = 0;
  for (const UploadedFile& file : files) bytes += std::ssize(file.content);
  const std::lock_guard lock(mutex_);
  RETURN_IF_ERROR(MakeRoom(bytes));
  std::vector<StoredFile> stored;
  // The content first: a file that is known is there.
  for (const UploadedFile& file : files) {
    stored.push_back({.id = NewId(32), .name = file.name});
    ASSIGN_OR_RETURN(AtomicFile content, AtomicFile::Create(UploadPath(stored.back().id), FileAccess::kOwner));
    RETURN_IF_ERROR(content.Append(file.content));
    RETURN_IF_ERROR(content.Commit());
  }
  ASSIGN_OR_RETURN(Transaction transaction, Transaction::Begin(database_));
  for (size_t i = 0; i < files.size(); ++i) {
    RETURN_IF_ERROR(database_.Run("INSERT INTO files (id, name, bytes, created) VALUES (?1, ?2, ?3, ?4)", stored[i].id,
                                  stored[i].name, std::ssize(files[i].content), UnixTime()));
  }
  RETURN_IF_ERROR(transaction.Commit());
  return stored;
}

Result<std::string> JobStore::FileName(const std::string& id) {
  const std::lock_guard lock(mutex_);
  ASSIGN_OR_RETURN(Statement row, database_.Query("SELECT name FROM files WHERE id = ?1", id));
  ASSIGN_OR_RETURN(const bool found, row.Step());
  if (!found) return NotFoundError(fmt::format("no file was uploaded with the id '{}'", id));
  return std::string(row.Text(0));
}

Result<std::string> JobStore::ReadUpload(const std::string& id) { return ReadRegularFile(UploadPath(id)); }

Status JobStore::AddJobs(std::vector<Job>& jobs) {
  const std::lock_guard lock(mutex_);
  ASSIGN_OR_RETURN(Transaction transaction, Transaction::Begin(database_));
  RETURN_IF_ERROR(database_.Run("INSERT INTO batches (id, request) VALUES (?1, ?2)", jobs.front().batch_id,
                                WriteJson(ToJson(*jobs.front().request))));
  for (Job& job : jobs) {
    ASSIGN_OR_RETURN(
        Statement insert,
        database_.Query("INSERT INTO jobs (id, batch_id, file_id, file_name, status, created) VALUES "
                        "(?1, ?2, ?3, ?4, ?5, ?6) RETURNING sequence",
                        job.id, job.batch_id, job.file_id, job.file_name, JobStatusName(job.status), job.created));
    RETURN_IF_ERROR(insert.Step().status());
    job.sequence = insert.Int64(0);
    RETURN_IF_ERROR(insert.Finish());
  }
  return transaction.Commit();
}

Status JobStore::Update(const Job& job) {
  const std::lock_guard lock(mutex_);
  return database_.Run(
      "UPDATE jobs SET status = ?2, error = ?3, output_path = ?4, tokens_done = ?5, metrics = ?6, ended = ?7 WHERE id "
      "= ?1",
      job.id, JobStatusName(job.status), job.error, job.output_path, job.tokens_done,
      job.metrics.is_null() ? std::string() : WriteJson(job.metrics), job.ended);
}

Status JobStore::Remove(const std::vector<std::string>& ids) {
  const std::lock_guard lock(mutex_);
  ASSIGN_OR_RETURN(Transaction transaction, Transaction::Begin(database_));
  for (const std::string& id : ids) RETURN_IF_ERROR(database_.Run("DELETE FROM jobs WHERE id = ?1", id));
  RETURN_IF_ERROR(database_.Run("DELETE FROM batches WHERE id NOT IN (SELECT batch_id FROM jobs)"));
  return transaction.Commit();
}

Result<std::vector<Job>> JobStore::LoadJobs() {
  const std::lock_guard lock(mutex_);
  std::map<std::string, std::shared_ptr<const BatchRequest>> requests;
  ASSIGN_OR_RETURN(Statement batches, database_.Query("SELECT id, request FROM batches"));
  ASSIGN_OR_RETURN(bool more, batches.Step());
  while (more) {
    ASSIGN_OR_RETURN(const Json json, ParseJson(batches.Text(1), database_.path()));
    ASSIGN_OR_RETURN(BatchRequest request, ParseBatchRequest(json));
    requests[std::string(batches.Text(0))] = std::make_shared<const BatchRequest>(std::move(request));
    ASSIGN_OR_RETURN(more, batches.Step());
  }
  std::vector<Job> jobs;
  ASSIGN_OR_RETURN(Statement rows,
                   database_.Query("SELECT sequence, id, batch_id, file_id, file_name, status, tokens_done, error, "
                                   "output_path, metrics, created, ended FROM jobs ORDER BY sequence"));
  ASSIGN_OR_RETURN(more, rows.Step());
  while (more) {
    const auto text = [&](int column) { return std::string(rows.Text(column)); };
    const std::optional<JobStatus> status = FindJobStatus(rows.Text(5));
    const auto request = requests.find(text(2));
    if (!status || request == requests.end()) {
      return DataLossError(fmt::format("{}: job {} has status '{}' and batch '{}', which are not known",
                                       database_.path(), text(1), text(5), text(2)));
    }
    Json metrics;
    if (!rows.Text(9).empty()) {
      ASSIGN_OR_RETURN(metrics, ParseJson(rows.Text(9), database_.path()));
    }
    jobs.push_back({.sequence = rows.Int64(0),
                    .id = text(1),
                    .batch_id = text(2),
                    .file_id = text(3),
                    .file_name = text(4),
                    .status = *status,
                    .tokens_done = rows.Int64(6),
                    .error = text(7),
                    .output_path = text(8),
                    .metrics = std::move(metrics),
                    .created = rows.Int64(10),
                    .ended = rows.Int64(11),
                    .request = request->second});
    ASSIGN_OR_RETURN(more, rows.Step());
  }
  return jobs;
}

}  // namespace nunspark::server
