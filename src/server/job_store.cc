#include "server/job_store.h"

#include <algorithm>
#include <map>
#include <utility>

#include <fmt/format.h>

#include "base/size.h"
#include "server/answers.h"

namespace nunspark::server {
namespace {

// Of uploaded texts together. Older ones that no job needs make room.
constexpr int64_t kMostUploadBytes = int64_t{2} << 30;
// What a file counts for at least: empty ones take room too.
constexpr int64_t kLeastBytes = 4096;

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
  RETURN_IF_ERROR(MakeOwnFolder(uploads));
  ASSIGN_OR_RETURN(Database database, Database::Open(folder.Path("web.db"), kSchema));
  ASSIGN_OR_RETURN(const std::vector<std::string> ids,
                   RowsOf<std::string>(database.Query("SELECT id FROM files"), FirstText));
  RETURN_IF_ERROR(RemoveAllBut(ids, uploads));
  return std::unique_ptr<JobStore>(new JobStore(std::move(folder), std::move(database)));
}

std::string JobStore::UploadPath(const std::string& id) const { return folder_.Path("uploads/" + id); }

Status JobStore::MakeRoom(int64_t bytes) {
  ASSIGN_OR_RETURN(Statement total, database_.Query("SELECT coalesce(sum(max(bytes, ?1)), 0) FROM files", kLeastBytes));
  RETURN_IF_ERROR(total.Step().status());
  int64_t stored = total.Int64(0);
  if (stored + bytes <= kMostUploadBytes) return Status();
  using Oldest = std::pair<std::string, int64_t>;
  ASSIGN_OR_RETURN(
      const std::vector<Oldest> oldest,
      RowsOf<Oldest>(database_.Query("SELECT id, bytes FROM files WHERE id NOT IN (SELECT file_id FROM jobs WHERE "
                                     "status IN ('queued', 'running')) ORDER BY created, rowid"),
                     [](const Statement& row) { return Oldest(row.Text(0), row.Int64(1)); }));
  for (const auto& [id, size] : oldest) {
    if (stored + bytes <= kMostUploadBytes) break;
    RETURN_IF_ERROR(database_.Run("DELETE FROM files WHERE id = ?1", id));
    RETURN_IF_ERROR(RemoveFile(UploadPath(id)));
    stored -= std::max(size, kLeastBytes);
  }
  if (stored + bytes <= kMostUploadBytes) return Status();
  return ResourceExhaustedError(fmt::format("files that jobs wait for take {} already, of {}; try again later",
                                            FormatSize(stored), FormatSize(kMostUploadBytes)));
}

Result<std::vector<StoredFile>> JobStore::AddFiles(const std::vector<UploadedFile>& files) {
  int64_t bytes = 0;
  std::vector<StoredFile> stored;
  for (const UploadedFile& file : files) {
    bytes += std::max<int64_t>(std::ssize(file.content), kLeastBytes);
    stored.push_back({.id = NewId(32), .name = file.name});
  }
  const std::lock_guard lock(mutex_);
  RETURN_IF_ERROR(MakeRoom(bytes));
  const Status added = WriteFiles(files, stored);
  if (added.ok()) return stored;
  // All or none: what a full disk took of them would take its room from others.
  for (const StoredFile& file : stored) (void)RemoveFile(UploadPath(file.id));
  return added;
}

Status JobStore::WriteFiles(const std::vector<UploadedFile>& files, const std::vector<StoredFile>& stored) {
  // The content first: a file that is known is there.
  for (size_t i = 0; i < files.size(); ++i) {
    ASSIGN_OR_RETURN(AtomicFile content, AtomicFile::Create(UploadPath(stored[i].id), FileAccess::kOwner));
    RETURN_IF_ERROR(content.Append(files[i].content));
    RETURN_IF_ERROR(content.Commit());
  }
  ASSIGN_OR_RETURN(Transaction transaction, Transaction::Begin(database_));
  for (size_t i = 0; i < files.size(); ++i) {
    RETURN_IF_ERROR(database_.Run("INSERT INTO files (id, name, bytes, created) VALUES (?1, ?2, ?3, ?4)", stored[i].id,
                                  stored[i].name, std::ssize(files[i].content), UnixTime()));
  }
  return transaction.Commit();
}

Result<std::string> JobStore::FileName(const std::string& id) {
  const std::lock_guard lock(mutex_);
  ASSIGN_OR_RETURN(const std::optional<std::string> name,
                   RowOf<std::string>(database_.Query("SELECT name FROM files WHERE id = ?1", id), FirstText));
  if (!name) return NotFoundError(fmt::format("no file was uploaded with the id '{}'", id));
  return *name;
}

Result<std::string> JobStore::ReadUpload(const std::string& id) { return ReadRegularFile(UploadPath(id)); }

Status JobStore::AddJobs(std::vector<Job>& jobs) {
  const std::lock_guard lock(mutex_);
  ASSIGN_OR_RETURN(Transaction transaction, Transaction::Begin(database_));
  RETURN_IF_ERROR(database_.Run("INSERT INTO batches (id, request) VALUES (?1, ?2)", jobs.front().request_id,
                                WriteJson(ToJson(*jobs.front().request))));
  for (Job& job : jobs) {
    ASSIGN_OR_RETURN(
        Statement insert,
        database_.Query("INSERT INTO jobs (id, batch_id, file_id, file_name, status, created) VALUES "
                        "(?1, ?2, ?3, ?4, ?5, ?6) RETURNING sequence",
                        job.id, job.request_id, job.file_id, job.file_name, JobStatusName(job.status), job.created));
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
  using Request = std::pair<std::string, std::shared_ptr<const JobRequest>>;
  ASSIGN_OR_RETURN(
      const std::vector<Request> list,
      RowsOf<Request>(database_.Query("SELECT id, request FROM batches"), [](const Statement& row) -> Result<Request> {
        ASSIGN_OR_RETURN(const Json json, ParseJson(row.Text(1), "a stored request"));
        ASSIGN_OR_RETURN(JobRequest request, ParseJobRequest(json));
        return Request(row.Text(0), std::make_shared<const JobRequest>(std::move(request)));
      }));
  const std::map<std::string, std::shared_ptr<const JobRequest>> requests(list.begin(), list.end());
  const auto job_of = [&requests](const Statement& row) -> Result<Job> {
    const auto text = [&row](int column) { return std::string(row.Text(column)); };
    const std::optional<JobStatus> status = FindJobStatus(row.Text(5));
    const auto request = requests.find(text(2));
    if (!status || request == requests.end()) {
      return DataLossError(
          fmt::format("job {} has status '{}' and request '{}', which are not known", text(1), text(5), text(2)));
    }
    Json metrics;
    if (!row.Text(9).empty()) {
      ASSIGN_OR_RETURN(metrics, ParseJson(row.Text(9), "stored metrics"));
    }
    return Job{.sequence = row.Int64(0),
               .id = text(1),
               .request_id = text(2),
               .file_id = text(3),
               .file_name = text(4),
               .status = *status,
               .tokens_done = row.Int64(6),
               .error = text(7),
               .output_path = text(8),
               .metrics = std::move(metrics),
               .created = row.Int64(10),
               .ended = row.Int64(11),
               .request = request->second};
  };
  return RowsOf<Job>(database_.Query("SELECT sequence, id, batch_id, file_id, file_name, status, tokens_done, error, "
                                     "output_path, metrics, created, ended FROM jobs ORDER BY sequence"),
                     job_of);
}

}  // namespace nunspark::server
