// Jobs and uploaded files on the drive: they survive the process and the machine.
#ifndef NUNSPARK_SERVER_JOB_STORE_H_
#define NUNSPARK_SERVER_JOB_STORE_H_

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "nunspark/status.h"
#include "server/data_folder.h"
#include "server/database.h"
#include "server/job.h"
#include "server/upload.h"

namespace nunspark::server {

struct StoredFile {
  std::string id, name;
};

// A folder with web.db (docs/FORMAT.md) and uploads/. Thread-safe. What a call has returned ok for is on the drive.
// Errors: Database's, and those of files.
class JobStore {
 public:
  // Errors: also DataFolder::Open's.
  static Result<std::unique_ptr<JobStore>> Open(const std::string& folder);

  // Makes room among files that no waiting or running job needs. Errors: also kResourceExhausted where that is not
  // enough.
  Result<std::vector<StoredFile>> AddFiles(const std::vector<UploadedFile>& files);
  // Errors: kNotFound when no file has this id.
  Result<std::string> FileName(const std::string& id);
  Result<std::string> ReadUpload(const std::string& id);

  // The jobs of one request. Sets their sequence.
  Status AddJobs(std::vector<Job>& jobs);
  // Writes what changes of a job: status, error, output, tokens, metrics, end.
  Status Update(const Job& job);
  // Forgets jobs; their outputs stay.
  Status Remove(const std::vector<std::string>& ids);
  // In the order of submission.
  Result<std::vector<Job>> LoadJobs();

 private:
  JobStore(DataFolder folder, Database database) : folder_(std::move(folder)), database_(std::move(database)) {}
  std::string UploadPath(const std::string& id) const;
  Status MakeRoom(int64_t bytes);
  Status WriteFiles(const std::vector<UploadedFile>& files, const std::vector<StoredFile>& stored);

  const DataFolder folder_;
  std::mutex mutex_;
  Database database_;
};

}  // namespace nunspark::server

#endif  // NUNSPARK_SERVER_JOB_STORE_H_
