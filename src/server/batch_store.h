// Uploaded files and batches in a data folder: records in SQLite, contents in plain files beside it (docs/FORMAT.md).
//
// Every answer to a line of a batch is one row, committed before it counts; what clients download is written from these
// rows when the batch ends. So a line has one answer whenever the process is killed: without its row it is asked again.
#ifndef NUNSPARK_SERVER_BATCH_STORE_H_
#define NUNSPARK_SERVER_BATCH_STORE_H_

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "io/file.h"
#include "nunspark/status.h"
#include "server/data_folder.h"
#include "server/database.h"

namespace nunspark::server {

inline constexpr int64_t kMostFiles = 10000;
inline constexpr int64_t kMostOpenBatches = 1000;  // that have not ended
inline constexpr int64_t kMostBatches = 10000;     // the oldest that have ended are forgotten

// Times are seconds since 1970.
struct FileRecord {
  std::string id;
  int64_t bytes = 0;
  int64_t created_at = 0;
  std::optional<int64_t> expires_at{};
  std::string filename;  // as the client calls it; no path
  std::string purpose;
};

enum class BatchStatus : uint8_t {
  kValidating,
  kInProgress,
  kFinalizing,
  kCancelling,
  kCompleted,
  kFailed,
  kExpired,
  kCancelled
};
std::string_view BatchStatusName(BatchStatus status);

struct BatchRecord {
  int64_t number = 0;  // ascending, in the order of creation
  std::string id;
  std::string endpoint;
  std::string input_file_id;
  std::string completion_window;
  BatchStatus status = BatchStatus::kValidating;
  // What it will be when its files are written; set once no line of it runs any more.
  std::optional<BatchStatus> ending{};
  std::optional<std::string> output_file_id{}, error_file_id{};
  int64_t created_at = 0, expires_at = 0;
  std::optional<int64_t> in_progress_at{}, finalizing_at{}, completed_at{}, failed_at{}, expired_at{}, cancelling_at{},
      cancelled_at{};
  int64_t total = 0, completed = 0, failed = 0;     // lines
  std::string errors{}, metadata{};                 // JSON; empty: null
  std::optional<int64_t> output_expires_after_s{};  // after the output was made
};

// A request in a batch's input.
struct BatchLine {
  int64_t line = 0;  // in the file, from 1
  std::string custom_id;
  int64_t offset = 0, bytes = 0;  // of the line's text
};

struct LineAnswer {
  int64_t batch = 0, line = 0;  // the batch's number
  bool failed = false;
  std::string text;  // a line of the output or error file, without its end
};

// One connection: of one thread at a time. Several may be open on a folder.
class BatchStore {
 public:
  static Result<BatchStore> Open(const DataFolder& folder);

  // Once, before anything else is done in the folder: removes what a process that was killed left behind.
  Status Recover();

  // ---- files

  // To be written; AddFile makes it known, until which Recover would remove it.
  Result<AtomicFile> CreateFile(const std::string& id) const;
  // One that was written and will not be made known.
  void DiscardFile(const std::string& id) const;
  // Errors: kResourceExhausted when there are too many.
  Status AddFile(const FileRecord& file);
  Result<std::optional<FileRecord>> FindFile(std::string_view id);
  // REQUIRES: the id of a known file.
  Result<File> OpenFile(const std::string& id) const;

  struct FileList {
    std::string purpose;  // empty: any
    std::string after;    // an id; empty: from the beginning
    int64_t limit = 0;
    bool ascending = false;  // by time of creation
  };
  Result<std::vector<FileRecord>> ListFiles(const FileList& list);
  enum class Deletion : uint8_t { kDone, kNotFound, kInUse };
  // A file that is the input of a batch that has not ended is in use.
  Result<Deletion> DeleteFile(const std::string& id);
  Result<std::vector<std::string>> FilesExpiredBy(int64_t time);

  // ---- batches

  // Sets `number`. Errors: kResourceExhausted when too many have not ended; kNotFound when there is no such file.
  Status AddBatch(BatchRecord& batch);
  Result<std::optional<BatchRecord>> FindBatch(std::string_view id);
  Result<std::vector<BatchRecord>> ListBatches(std::string_view after, int64_t limit);  // the newest first
  Result<std::vector<BatchRecord>> OpenBatches();                                       // the oldest first
  // False: it has ended or is about to.
  Result<bool> CancelBatch(std::string_view id, int64_t time);

  // Forgets the lines of a batch whose validation was cut short.
  Status ForgetLines(int64_t batch);
  // Returns those that have a custom_id for the second time, which are not added.
  Result<std::vector<BatchLine>> AddLines(int64_t batch, std::span<const BatchLine> lines);
  // From validating to in_progress, or to failed with `errors`. Does nothing to a batch that was cancelled meanwhile.
  Status StartBatch(int64_t batch, int64_t total, int64_t time);
  Status FailBatch(int64_t batch, const std::string& errors, int64_t time);

  // Lines without an answer that come after line `after`, in their order.
  Result<std::vector<BatchLine>> LinesToDo(int64_t batch, int64_t after, int64_t limit);
  // All or none. An answer to a line that has one changes nothing.
  Status AddAnswers(std::span<const LineAnswer> answers);
  // No more lines will run: the batch's files can be written.
  Status SetEnding(int64_t batch, BatchStatus ending, int64_t time);
  // Every line in order: line, custom_id, whether it failed (NULL: no answer), the answer's text.
  Result<Statement> Answers(int64_t batch);
  // With the files that were written.
  Status EndBatch(const BatchRecord& batch, const std::optional<FileRecord>& output,
                  const std::optional<FileRecord>& errors, int64_t time);
  // Lines and answers of batches that have ended, some at a time; false: there are no more.
  Result<bool> CleanSome();

  const std::string& files_folder() const { return files_folder_; }

 private:
  BatchStore(Database database, std::string files_folder)
      : database_(std::move(database)), files_folder_(std::move(files_folder)) {}

  std::string PathOf(const std::string& id) const { return JoinPath(files_folder_, id); }
  Status InsertFile(const FileRecord& file);
  Result<int64_t> Number(Result<Statement> query);

  Database database_;
  std::string files_folder_;
};

}  // namespace nunspark::server

#endif  // NUNSPARK_SERVER_BATCH_STORE_H_
